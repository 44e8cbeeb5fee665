package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/collective/mpi"
)

func TestEnvironmentIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"rank":   {map[string]string{"RANK": "two", "WORLD_SIZE": "3"}, `RANK: got "two"`},
		"none":   {map[string]string{"RANK": "1"}, `WORLD_SIZE: got ""`},
		"beyond": {map[string]string{"RANK": "3", "WORLD_SIZE": "3"}, "got RANK 3 and WORLD_SIZE 3"},
		"token":  {map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "192.0.2.1"}, "set HEFT_RUN_TOKEN"},
	} {
		if _, _, err := environment(func(key string) string { return c.env[key] }); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	env := map[string]string{"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1234", "HEFT_RUN_TOKEN": "x"}
	o, local, err := environment(func(key string) string { return env[key] })
	if err != nil || o.Rank != 2 || o.Size != 4 || o.Address != "192.0.2.1:1234" || o.Token != "x" || local != 0 {
		t.Errorf("%+v, %d, %v", o, local, err)
	}
}

func TestWithoutAnEnvironmentThereIsOneRank(t *testing.T) {
	t.Setenv("RANK", "")
	t.Setenv("WORLD_SIZE", "")
	w, err := FromEnvironment(t.Context())
	if err != nil || w.Size() != 1 || w.Close(nil) != nil {
		t.Errorf("%v, %v", w, err)
	}
	if _, err := LaunchFromTorch(t.Context()); !errors.Is(err, ErrNoEnvironment) {
		t.Error(err)
	}
}

// TestLaunchersAreToldApart: torchrun's variables have priority, a batch script of Slurm is not a rank, and a step of
// srun becomes torchrun's variables.
func TestLaunchersAreToldApart(t *testing.T) {
	step := map[string]string{"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "40123",
		"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "gpu[007-009,12]-ib,login1", "HEFT_RUN_TOKEN": "x"}
	with := func(name, value string) map[string]string {
		env := maps.Clone(step)
		env[name] = value
		return env
	}
	underPMIx := slurmLauncher
	if mpi.Built {
		underPMIx = mpiLauncher
	}
	for name, c := range map[string]struct {
		env  map[string]string
		want launcher
	}{
		"nothing":      {nil, noLauncher},
		"torchrun":     {with("RANK", "0"), torchLauncher},
		"mpirun":       {map[string]string{"OMPI_COMM_WORLD_SIZE": "2"}, mpiLauncher},
		"srun":         {step, slurmLauncher},
		"srun, PMIx":   {with("PMIX_RANK", "3"), underPMIx},
		"batch script": {map[string]string{"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, noLauncher},
	} {
		if got := launcherOf(func(key string) string { return c.env[key] }); got != c.want {
			t.Errorf("%s: got launcher %d, want %d", name, got, c.want)
		}
	}
	o, local, err := environment(slurm(func(key string) string { return step[key] }))
	if err != nil || o.Rank != 3 || o.Size != 8 || local != 1 || o.Address != "gpu007-ib:15123" {
		t.Errorf("srun: %+v, %d, %v", o, local, err)
	}
	env := with("SLURM_STEP_NUM_NODES", "1")
	if o, _, err := environment(slurm(func(key string) string { return env[key] })); err != nil || o.Address != "127.0.0.1:15123" {
		t.Errorf("srun on one node: %+v, %v", o, err)
	}
	for list, want := range map[string]string{"a": "a", "a,b": "a", "n[1,3]": "n1", "n[01-04]": "n01", "": ""} {
		if got := firstHost(list); got != want {
			t.Errorf("first of %q: got %q, want %q", list, got, want)
		}
	}
}

// TestLaunchedRanks: a launcher says how many ranks there are, and how many share a machine. train run knew only the
// variables of torchrun, so that each process of mpirun and srun trained a model of its own, and each pod took a quarter
// of its processors.
func TestLaunchedRanks(t *testing.T) {
	step := func(tasks string) map[string]string {
		return map[string]string{"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_TASKS_PER_NODE": tasks}
	}
	for name, c := range map[string]struct {
		env         map[string]string
		ranks, here int
	}{
		"nothing":       {nil, 0, 0},
		"torchrun":      {map[string]string{"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, 4, 2},
		"by hand":       {map[string]string{"RANK": "0", "WORLD_SIZE": "1"}, 1, 1},
		"mpirun":        {map[string]string{"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 3, 2},
		"srun":          {step("4(x2)"), 8, 4},
		"srun, unequal": {step("5,3"), 8, 5},
		"srun --pty":    {map[string]string{"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, 0, 0},
	} {
		if ranks, here, err := launched(func(key string) string { return c.env[key] }); ranks != c.ranks || here != c.here || err != nil {
			t.Errorf("%s: got %d ranks, %d here, %v; want %d and %d", name, ranks, here, err, c.ranks, c.here)
		}
	}
	if _, _, err := launched(func(key string) string { return map[string]string{"RANK": "0", "WORLD_SIZE": "many"}[key] }); err == nil || !strings.Contains(err.Error(), `WORLD_SIZE: got "many"`) {
		t.Error(err)
	}
	manifest, err := os.ReadFile(filepath.FromSlash("../deploy/train-job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pod := map[string]string{"RANK": "3"} // the index of the pod
	for _, m := range regexp.MustCompile(`{ name: ([A-Z_]+), value: "?([^" }]*)"? }`).FindAllSubmatch(manifest, -1) {
		pod[string(m[1])] = string(m[2])
	}
	if ranks, here, err := launched(func(key string) string { return pod[key] }); ranks != 4 || here != 1 || err != nil {
		t.Errorf("a pod of deploy/train-job.yaml: got %d ranks, %d here, %v; want 4 and 1", ranks, here, err)
	}
}

// childOf is set in the processes of TestProcessesTrainAsGoroutines.
const childOf = "HEFT_TEST_RANKS"

// Ranks in separate processes end with the bits of ranks in one process, with every plugin.
func TestProcessesTrainAsGoroutines(t *testing.T) {
	if os.Getenv(childOf) != "" {
		t.Skip("is a child")
	}
	for _, e := range processes(t, 2, "TestRankOfAProcess", childOf+"=1") {
		if e.err != nil || !strings.Contains(e.out, "the same weights as goroutines") {
			t.Error(e.err, e.out)
		}
	}
}

// TestRankOfAProcess is one rank of the test above.
func TestRankOfAProcess(t *testing.T) {
	if os.Getenv(childOf) == "" {
		t.Skip("runs as a child of TestProcessesTrainAsGoroutines")
	}
	world, err := FromEnvironment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = world.Close(trainAsGoroutines(world.Context(), world))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("the same weights as goroutines")
}

func trainAsGoroutines(ctx context.Context, w *World) error {
	for _, name := range []string{"ddp", "zero1", "zero2", "gemini"} { // processes must agree on the order
		plugin := plugins[name]
		want := make([][][]float32, w.Size())
		err := Launch(ctx, w.Size(), func(ctx context.Context, w *World) (err error) {
			want[w.Rank()], _, _, _, err = boosted(ctx, plugin(w), w, 3, 2)
			return err
		})
		if err != nil {
			return err
		}
		got, _, _, _, err := boosted(ctx, plugin(w), w, 3, 2)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(got, want[0], slices.Equal) {
			return fmt.Errorf("%s: weights %v, want %v", name, got, want[0])
		}
	}
	return nil
}
