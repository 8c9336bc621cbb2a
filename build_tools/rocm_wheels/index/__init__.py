"""Static package indexes: pages that any web server can give out, and what is known of them.

A folder DIR is an index as a whole (``--index-url https://host/DIR/``):

| file | what it is |
|---|---|
| ``index.html``, ``index.json`` | root page: PEP 503 and PEP 691 |
| ``<project>/index.html``, ``index.json`` | project page (normalized name), the wheels beside it |
| ``<project>/<wheel>.metadata`` | METADATA of a wheel (PEP 658, PEP 714) |
| ``<project>/<name>-<version>-variants.json`` | what its variant wheels state, joined (PEP 825) |
| ``<project>/variants/<digest>/<name>-<version>-variants.json`` | the same, for the pages |
| ``links.html`` | every wheel on one page, for ``--find-links`` |
| ``<family>/…`` | the index of a GPU family: its own wheels and those of DIR itself |
| ``.index/<project>.jsonl`` | what is known of each wheel (digest, date, …); only needed to write |

The pages link to variants files by digest: a page that somebody is reading stays true when they change.
A static server gives out ``index.html`` for a folder, which is what pip and uv need. A server that can choose
by ``Accept`` gives ``index.json`` as ``application/vnd.pypi.simple.v1+json`` (``serve`` does).

| module | what it knows |
|---|---|
| ``entries`` ``state`` | a wheel of an index; the files under ``.index`` |
| ``views`` | folders and families |
| ``taking`` ``digests`` | reading a wheel that is to be added; digests that are given |
| ``pages`` ``releases`` | the bytes of pages and of variants files |
| ``staging`` ``switching`` ``changing`` | pages that follow from a change; how files are exchanged |
| ``adding`` ``building`` ``marking`` | add, build, remove and yank |
| ``reading`` ``reach`` | pages of any index, here or on a server |
| ``checks`` ``crawl`` ``stale`` ``faults`` ``verify`` | what can be wrong with an index |
| ``server`` | a server for tests |
| ``picking`` ``expecting`` ``installers`` ``spelling`` | what pip and uv pick; versions that sort |
"""
