package train

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/collective/mpi"
)

// launcher is the program that started the processes of a world.
type launcher int

const (
	noLauncher    launcher = iota
	torchLauncher          // torchrun, train launch, or manually set variables
	mpiLauncher
	slurmLauncher
)

// launcherOf determines the launcher from its variables. Those of torchrun take precedence. A step
// of srun is joined over MPI only in builds with MPI.
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

// launched implements [Launched] with the variables that get returns.
func launched(get func(string) string) (ranks, here int, err error) {
	size, local := "WORLD_SIZE", "LOCAL_WORLD_SIZE"
	switch launcherOf(get) {
	case noLauncher:
		return 0, 0, nil
	case mpiLauncher:
		if size, local = "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"; get(size) == "" { // srun --mpi=pmix
			size, local = "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"
		}
	case slurmLauncher:
		size, local = "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"
	}
	if ranks, err = strconv.Atoi(get(size)); err != nil || ranks < 1 {
		return 0, 0, fmt.Errorf("%s: got %q, want the number of ranks", size, get(size))
	}
	if ranks == 1 && size != "WORLD_SIZE" {
		return 0, 0, nil
	}
	text := get(local)
	if end := strings.IndexAny(text, "(,"); end > 0 { // 2(x3),1: two on each of three nodes, one on the last
		text = text[:end]
	}
	if here, err = strconv.Atoi(text); err != nil || here < 1 {
		here = ranks
	}
	return ranks, here, nil
}

// slurm translates srun's variables to torchrun's. Variables that are set take precedence. A batch
// script has no SLURM_STEP_NUM_TASKS, so it is not mistaken for a rank.
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
				return strconv.FormatUint(15000+job%20000, 10) // jobs that share a node have different ports
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
