//go:build mpi && cgo && linux

package train

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
)

// The fixtures of TestGoldenFixturesAcrossProcesses hold for ranks of Open MPI, too.
func TestGoldenFixturesOverMPI(t *testing.T) {
	if os.Getenv(goldenChild) != "" {
		t.Skip("is a child")
	}
	if len(golden.Glob(t, "train/dataloader/gather_for_metrics_*.json")) == 0 {
		return
	}
	_, err := exec.LookPath("mpirun")
	testenv.Need(t, "mpi", err == nil, "mpirun of Open MPI")
	for n := 1; n <= 4; n++ {
		cmd := exec.CommandContext(t.Context(), "mpirun", "-n", fmt.Sprint(n), "--oversubscribe", "--mca", "btl", "self,vader", "--mca", "oob_tcp_if_include", "lo",
			os.Args[0], "-test.run", "^TestGoldenRankOfAProcess$")
		cmd.Env = append(os.Environ(), goldenChild+"=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%d ranks: %v\n%s", n, err, out)
		}
	}
}
