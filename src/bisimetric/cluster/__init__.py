"""Work on a cluster of Dask: one metric in tiles over many workers, and many independent pieces of work.

`crew`: who works, checked, and tasks that are done again where a worker is lost. `tiles`: which rows and columns go
together, and what each of them has to read. `store`: a folder that all workers see, with distances in versions, each
written whole before the next begins. `tasks`: what a worker does with a tile, a pure function from files to files.
`distances`, `sweeper`, `engine`: the seam of `backends.protocol`, for drivers that know nothing of all this. `costs`:
what a sweep will cost, before anything is started. `pieces`: independent pieces of work.
"""
