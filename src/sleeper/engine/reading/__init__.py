"""Readers of data files, and the checks of what they read.

| reader | what it reads | who chooses it |
|---|---|---|
| `lookup/reader.py` | rows of complete keys, from pages that can have them | `tables/query.py` |
| `few_rows.py` | regions of few rows, without an engine; sorted in memory | `read_leaves.py` |
| `file_rows.py` | one file in its order, or many in any order | `read_leaves.py` |
| `merged_scan.py` | several sorted files as one stream, by DataFusion | it, and compactions |
| `check_file.py` | whole files, against all that is said of them | `tables/verify.py` |

`read_leaves.py` is what queries, SQL, exports and Spark call: it chooses among the three in the
middle. The other modules serve them: `regions.py` has regions as predicates, `session.py` the
DataFusion context, and `decoded_rows.py` decodes pages for `file_rows.py`. Pages are compared with
their checksums by `page_runs.py` (runs of pages, with the sums of their file) and
`page_checksums.py` (page by page); `verified_pages.py` remembers which ones were, for what
DataFusion reads by itself.
"""
