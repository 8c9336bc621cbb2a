"""From a request to finished wheels, step by step.

A ``WheelsRequest`` (what was asked) and the ``Facts`` (what was looked up) make a ``StepGraph``; settling its
steps gives the ``Plan``: for each ``Step`` its inputs, its fingerprint, and whether it runs and why.
``run`` does a plan: preflight, then every step that is not current in a process of its own (``execute``,
``run_step``; what each kind does is in ``step_kinds``). What happened goes into the run's ``record``, what a
step made into its stamp (``outputs``); ``report`` shows a record, ``clean`` deletes what builds left.
"""
