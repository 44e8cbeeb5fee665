//go:build mpi && cgo && linux

package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/internal/testenv"
)

// child names the task that a process of mpirun runs instead of the tests.
const child = "HEFT_TEST_MPI"

func TestMain(m *testing.M) {
	if do := os.Getenv(child); do != "" {
		if err := rank(do); err != nil {
			fmt.Println("ended:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// rank is one process of a world.
func rank(do string) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	l, err := Open(cancel)
	if err != nil {
		return err
	}
	err = map[string]func(context.Context, *Link) error{"exchange": exchange, "disagree": disagree, "fail": failing}[do](ctx, l)
	l.Close(err)
	return err
}

// exchange sums, gathers and broadcasts numbers of many lengths.
func exchange(ctx context.Context, l *Link) error {
	c := collective.Over(l)
	for _, n := range []int{1, 0, 3, 1000, 1 << 20} {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i % 1000 * (l.Rank() + 1))
		}
		if err := collective.AllReduce(ctx, c, collective.Sum, x); err != nil {
			return err
		}
		for i, v := range x {
			if want := float32(i % 1000 * l.Size() * (l.Size() + 1) / 2); v != want {
				return fmt.Errorf("element %d of %d is %v, want %v", i, n, v, want)
			}
		}
		all, err := collective.AllGather(ctx, c, make([]byte, n*l.Rank()))
		if err != nil || len(all) != l.Size() || len(all[l.Size()-1]) != n*(l.Size()-1) {
			return fmt.Errorf("gather: %d results, error %v", len(all), err)
		}
	}
	if err := collective.Barrier(ctx, c); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d ended\n", l.Rank(), l.Size())
	return nil
}

// disagree calls for sums of different lengths.
func disagree(ctx context.Context, l *Link) error {
	return collective.AllReduce(ctx, collective.Over(l), collective.Sum, make([]float32, 4+l.Rank()/2))
}

// failing fails on the last rank while the others wait for it.
func failing(ctx context.Context, l *Link) error {
	if l.Rank() == l.Size()-1 {
		return errors.New("out of luck")
	}
	err := collective.Barrier(ctx, collective.Over(l))
	if ctx.Err() == nil {
		return fmt.Errorf("the context goes on after %w", err)
	}
	return err
}

// mpirun starts n processes of this binary.
func mpirun(t *testing.T, n int, do string) (string, error) {
	t.Helper()
	_, err := exec.LookPath("mpirun")
	testenv.Need(t, "mpi", err == nil, "mpirun of Open MPI")
	cmd := exec.CommandContext(t.Context(), "mpirun", "-n", fmt.Sprint(n), "--oversubscribe", "--mca", "btl", "self,vader", "--mca", "oob_tcp_if_include", "lo", os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+do, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestRanksOfMPIExchange(t *testing.T) {
	for n := 2; n <= 4; n++ {
		out, err := mpirun(t, n, "exchange")
		if err != nil || strings.Count(out, "ended") != n {
			t.Errorf("%d ranks: %v\n%s", n, err, out)
		}
	}
}

func TestRanksWithDifferentCallsOverMPIGetAnError(t *testing.T) {
	out, err := mpirun(t, 3, "disagree")
	if err == nil || !strings.Contains(out, "rank 2: calls all-reduce (sum of 5 float32") {
		t.Errorf("got %v\n%s", err, out)
	}
}

func TestARankThatFailsOverMPIIsNamed(t *testing.T) {
	out, err := mpirun(t, 3, "fail")
	if err == nil || !strings.Contains(out, "out of luck") || strings.Contains(out, "goes on") {
		t.Errorf("got %v\n%s", err, out)
	}
}

func TestVariablesOfLaunchers(t *testing.T) {
	get := func(env map[string]string) func(string) string { return func(name string) string { return env[name] } }
	if Started(get(nil)) || !Started(get(map[string]string{"OMPI_COMM_WORLD_SIZE": "2"})) || !Started(get(map[string]string{"PMIX_RANK": "0"})) {
		t.Error("Started")
	}
	if n, err := LocalRank(get(map[string]string{"OMPI_COMM_WORLD_LOCAL_RANK": "1"}), 5); n != 1 || err != nil {
		t.Error(n, err)
	}
	if n, err := LocalRank(get(nil), 5); n != 5 || err != nil {
		t.Error(n, err)
	}
	if _, err := LocalRank(get(map[string]string{"SLURM_LOCALID": "x"}), 5); err == nil || !bytes.Contains([]byte(err.Error()), []byte("SLURM_LOCALID")) {
		t.Error(err)
	}
}
