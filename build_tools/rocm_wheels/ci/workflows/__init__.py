"""The workflows of GitHub: values made by pure functions, written down as YAML.

| module | what it holds |
|---|---|
| ``text`` | a value as YAML that people can read |
| ``pieces`` | steps and jobs: what all of them have |
| ``building`` | ``build-line.yml``: a torch line on a platform, from lock to wheels |
| ``releasing`` | ``release-set.yml``, ``release-line.yml``: sets are staged, tested, judged, promoted |
| ``testing`` | its jobs on machines with GPUs, and the one that writes down what they found |
| ``starting`` | what begins by itself or by hand: nightly, release, presubmit, promote, the tool's own CI |
| ``rules`` | what every workflow must keep to, whoever wrote it |
| ``files`` | all of them, as files |
"""
