"""What bytes of a stream mean, without I/O and without a clock.

- ``events``  the vocabulary: kinds of events, phases, verdicts, faults, and what a protocol's
  reader must offer
- ``sse``     bytes → whole server-sent events, for every line ending and every chunking
- ``coding``  the side copy of a compressed stream, decoded step by step
- ``lenient`` JSON that strict parsers reject but clients read
- ``tally``   what is counted and timed of one stream
- ``faults``  what a client is told when a stream does not end as it should
- ``hold``    what has come and may not be handed on yet
- ``observer`` whole blocks → kinds, and what all of them come to
- ``evidence`` from what was seen to the verdict
- ``settings`` what configuration and request say about one stream
- ``limits``  how long each kind of silence may last
- ``stream``  the one object that turns received bytes into bytes to send, and knows verdict and
  deadline
"""
