"""What the gateway tells about its work: the map of this package, no code itself.

- ``records``   one :class:`~gateway.observe.records.RequestRecord` per request, filled in while it
  runs
- ``live``      the register of the records that are open now, and the page that lists them
- ``snapshot``  plain numbers by metric and labels, which can be sent and merged
- ``metrics``   folds records into a snapshot, at the end of a request and for each scrape
- ``exec_metrics``  the same for the sidecar: commands and their outputs
- ``exec_log``  one line when a command starts and one when it has ended
- ``export``    a snapshot as Prometheus metric families
- ``log_writer`` writes lines to a stream that may stop taking them
- ``logs``      structured lines, with every secret taken out

Counting on the hot path is plain attributes on the record and its stream. Nothing here looks up a
label per event.
"""
