"""Install torch and what belongs to it: exactly the files that were chosen, checked, and all or nothing.

``plan_installation`` chooses, resolves and compares without changing anything; ``carry_out_plan`` fetches every file,
installs them by uv or pip in one go and looks whether it is so. From where which project may come is
``rule``'s to say.

| module | what it does |
|---|---|
| ``asked`` | pip's words for packages |
| ``target`` | the environment: which Python, may it be changed, what is in it |
| ``venv`` | an environment of its own, which is made where it is not there yet |
| ``rule`` ``offers`` ``view`` | from where each project comes; one index for the resolver, served here |
| ``resolve`` | the whole set, by uv's resolver |
| ``plan`` ``planning`` | what will be done, and the commands to do it by hand |
| ``cache`` ``download`` ``fetch`` ``progress`` | large files: carried on, checked, kept |
| ``carrying_out`` ``records`` ``belonging`` | install, then look whether that is what is there |
"""

from rocm_wheels.hosts.install.carrying_out import carry_out_plan
from rocm_wheels.hosts.install.planning import InstallRequest, plan_installation

__all__ = ["InstallRequest", "carry_out_plan", "plan_installation"]
