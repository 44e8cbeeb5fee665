// Package mpi connects the ranks of a training world that an MPI launcher started: a
// [collective.Link] over MPI's point-to-point messages, for mpirun and srun --mpi=pmix.
//
// [Started] says whether such a launcher started this process, and [Open] joins its world. Builds
// with tag mpi have it: they need cgo, Open MPI's headers and its library. Other builds have an Open
// that says so.
//
// Collective operations are those of package collective, so that sums have the same order, and the
// same bits, over every transport. The package knows no launcher's flags and no other environment.
package mpi

import (
	"fmt"
	"strconv"
)

// launcherVariables are set by Open MPI's mpirun, and by launchers with PMIx, in each process.
var launcherVariables = []string{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK"}

// Started reports whether an MPI launcher started this process, by the variables that get reads.
func Started(get func(string) string) bool {
	for _, name := range launcherVariables {
		if get(name) != "" {
			return true
		}
	}
	return false
}

// LocalRank returns this rank's number on its machine by the launcher's variables, or rank where they
// do not say.
func LocalRank(get func(string) string, rank int) (int, error) {
	for _, name := range []string{"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"} {
		if text := get(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return 0, fmt.Errorf("%s: got %q, want a number", name, text)
			}
			return n, nil
		}
	}
	return rank, nil
}
