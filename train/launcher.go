package train

import (
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/collective/mpi"
)

// launcher is what started the processes of a world.
type launcher int

const (
	noLauncher    launcher = iota
	torchLauncher          // torchrun, train launch, or variables by hand
	mpiLauncher
	slurmLauncher
)

// launcherOf finds the launcher by its variables. Those of torchrun say the most. A step of srun is
// joined over MPI only in builds that have it.
func launcherOf(get func(string) string) launcher {
	step := get("SLURM_PROCID") != "" && get("SLURM_STEP_NUM_TASKS") != ""
	switch {
	case get("RANK") != "" || get("WORLD_SIZE") != "":
		return torchLauncher
	case mpi.Started(get) && (mpi.Built || !step):
		return mpiLauncher
	case step:
		return slurmLauncher
	}
	return noLauncher
}

// slurm returns torchrun's variables as srun's say them. Those that are set stay. A batch script has no
// SLURM_STEP_NUM_TASKS, so that it is not taken for a rank.
func slurm(get func(string) string) func(string) string {
	return func(name string) string {
		if value := get(name); value != "" {
			return value
		}
		switch name {
		case "RANK":
			return get("SLURM_PROCID")
		case "WORLD_SIZE":
			return get("SLURM_STEP_NUM_TASKS")
		case "LOCAL_RANK":
			return get("SLURM_LOCALID")
		case "MASTER_ADDR":
			if get("SLURM_STEP_NUM_NODES") == "1" {
				return "127.0.0.1"
			}
			return firstHost(get("SLURM_STEP_NODELIST"))
		case "MASTER_PORT":
			if job, err := strconv.ParseUint(get("SLURM_JOB_ID"), 10, 64); err == nil {
				return strconv.FormatUint(15000+job%20000, 10) // jobs that share a node have ports of their own
			}
		}
		return ""
	}
}

// firstHost returns the first host of a list such as "gpu[003-007,9]-ib,login1".
func firstHost(list string) string {
	end := strings.IndexAny(list, ",[")
	if end < 0 {
		return list
	}
	host := list[:end]
	if list[end] == ',' {
		return host
	}
	numbers, rest, _ := strings.Cut(list[end+1:], "]")
	if i := strings.IndexAny(numbers, "-,"); i >= 0 {
		numbers = numbers[:i]
	}
	suffix, _, _ := strings.Cut(rest, ",")
	return host + numbers + suffix
}
