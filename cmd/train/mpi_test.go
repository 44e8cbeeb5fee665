//go:build mpi && cgo && linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/testenv"
)

// TestRunsOverMPI: train run under mpirun is one rank of several, with the weights of ranks in one process. It took no
// notice of mpirun, and each process trained a model of its own.
func TestRunsOverMPI(t *testing.T) {
	_, err := exec.LookPath("mpirun")
	testenv.Need(t, "mpi", err == nil, "mpirun of Open MPI")
	dir, text, here, out := tinyModel(t), lessons(t, 12), filepath.Join(t.TempDir(), "here"), filepath.Join(t.TempDir(), "out")
	args := []string{"run", "--model", dir, "--data", text, "--batch", "2", "--max-steps", "3", "--threads", "1", "--output"}
	if status, _, stderr := command(t, append(args, here, "--num-processes", "2")...); status != 0 {
		t.Fatal(stderr)
	}
	cmd := exec.CommandContext(t.Context(), "mpirun", append([]string{"-n", "2", "--oversubscribe", "--mca", "btl", "self,vader", "--mca", "oob_tcp_if_include", "lo", os.Args[0]}, append(args, out)...)...)
	cmd.Env = append(os.Environ(), "TEST_IS_TRAIN=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if !bytes.Equal(weightsOf(t, out), weightsOf(t, here)) {
		t.Error("the weights are not those of two ranks in one process")
	}
}
