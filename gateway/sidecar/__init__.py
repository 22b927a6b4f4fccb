"""Commands for agents, with all of their output: the map of this package, no code itself.

Processes::

    gateway ── SEQPACKET ──> zygote ── fork ──> shim ── fork + exec ──> leader (bash -c, or argv)
       └────────────── one socket per command ──┘└── one pipe for stdout and stderr ──┘

    In a sandbox:  shim ── fork + exec ──> bwrap ── fork + exec ──> init ── fork + exec ──> leader
                    └───────── one socket: how the leader ended ─────┘

The endpoint::

    server      Sidecar: checks, starts, drains and stops all of it
    listener    the socket, and who is at its other end
    endpoint    /v1/exec: routes and statuses; replies: bodies and headers
    bodies      what is sent, within a bound
    service     a command from the request to the end of its record
    plan        from a request to a Spec; workdir opens its directory; turns says when
    store       the records; folder: their files
    views       a command at one moment; answer: the object that is told of it
    reader      outputs as bytes and as events, from the file; frames: one event
    account     what is counted and logged; refusal: why nothing was started
    tasks       work that outlives a request

What runs commands, for the endpoint::

    spec        Spec: what is to be run, and within which bounds
    runner      Runner: start() → spawn(spec) → Command; stop()
    command     Command: status, head, tail, changed(), answered(), ended(), closed(), kill()
    status      Status and its parts, as the HTTP answer's ``detail``; read_status(status.json)
    isolation   the argv of a sandbox, and what is missing for one
    hiding      what a sandbox covers for keys and tokens
    fallback    ThreadRunner for other systems; make_runner() chooses

    link        the socket to one shim, in the event loop
    watch       deadlines for shims that somebody has stopped

What runs outside the gateway, with the standard library alone::

    zygote      forks shims; kills what a killed shim has left
    shim        one command: its directory, its pipe, its leader, its session
    launch      from fork to exec
    sandbox     what is handed to a sandbox and heard from it
    init        the first process of a sandbox: collects what ends, tells how
    session     the poll loop: drain, deadlines, killing, messages
    control     the lines between a session and the gateway
    family      the processes of a command: list, hold, signal, reap
    pipes       what is in a pipe, and whether more can come
    flood       many small writes, read together
    sink        spill, head, tail, counts
    record      the report while it is made; status.json
    kernel      prctl, /proc, pidfds

A command, for the one who calls::

    runner = make_runner()
    await runner.start()                    # before secrets are read; raises SidecarError
    command = await runner.spawn(spec)      # it runs, or status.state is "spawn_failed"
    status = await command.answered()       # its end; or "output_open", if others hold the pipe
    status = await command.ended()          # its end and the end of its output
    command.head, command.tail              # bytes; the tail begins where the head ends, or later
    await runner.stop()

While it runs, ``await command.changed()`` and read the spill (``command.spill_path``) up to
``command.bytes_spilled``. A caller that goes away says ``command.kill(reason=CLIENT_GONE)``.

What is promised: ``output.complete`` is true only if the end of the output was seen and each byte
of it is in the spill. The spill is a prefix of the output in any case. A signal is never an exit
code. After a timeout, a kill or the gateway's death no process of the command is left.

What is not: a shim that is killed takes head and tail along (``interrupted``); the spill stays. Who
can signal the gateway's user can kill shims: without another user or a sandbox, commands can.
"""
