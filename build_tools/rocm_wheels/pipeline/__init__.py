"""From a request to finished wheels, step by step.

A ``WheelsRequest`` (what was asked, split into cells of one Python and one set of targets) and the ``Facts``
(what was looked up) make the steps of a cell; settling them gives its ``Plan``: for each ``Step`` its inputs,
its fingerprint, and whether it runs and why. ``run`` does the plans one after the other: preflight, then
every step that is not current in a process of its own (``execute``, ``run_step``; what each kind does is in
``step_kinds``). What happened goes into the run's ``record``, what a step made into its stamp (``outputs``);
``report`` shows a record, ``clean`` deletes what builds left.
"""
