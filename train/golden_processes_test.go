package train

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// ofProcesses is the world of the processes of TestGoldenFixturesAcrossProcesses, else nil.
var ofProcesses *World

// onRanks runs f on n ranks: on goroutines, or on this process as one of them.
func onRanks(ctx context.Context, n int, f func(context.Context, *World) error) error {
	if ofProcesses == nil {
		return Launch(ctx, n, f)
	}
	if n != ofProcesses.Size() {
		return fmt.Errorf("the fixture has %d ranks, want %d", n, ofProcesses.Size())
	}
	return f(ofProcesses.Context(), ofProcesses)
}

// rankOfProcess returns the rank of this process, or 0 if ranks are goroutines.
func rankOfProcess() int {
	if ofProcesses == nil {
		return 0
	}
	return ofProcesses.Rank()
}

// goldenChild is set in the processes of TestGoldenFixturesAcrossProcesses.
const goldenChild = "HEFT_TEST_GOLDEN_RANK"

// The fixtures of gather_for_metrics, of DDP under accumulation, and of a llama with DDP and ZeRO-1
// hold for processes that exchange over TCP, as for goroutines.
func TestGoldenFixturesAcrossProcesses(t *testing.T) {
	if os.Getenv(goldenChild) != "" {
		t.Skip("is a child")
	}
	if len(golden.Glob(t, "train/dataloader/gather_for_metrics_*.json")) == 0 {
		return
	}
	for n := 1; n <= 4; n++ {
		for _, e := range processes(t, n, "TestGoldenRankOfAProcess", goldenChild+"=1") {
			if e.err != nil {
				t.Errorf("%d ranks: %v\n%s", n, e.err, e.out)
			}
		}
	}
}

// TestGoldenRankOfAProcess is one rank of the test above.
func TestGoldenRankOfAProcess(t *testing.T) {
	if os.Getenv(goldenChild) == "" {
		t.Skip("runs as a child of TestGoldenFixturesAcrossProcesses")
	}
	world, err := FromEnvironment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ofProcesses = world
	n := 0
	for _, kind := range []func(t *testing.T, size int) (int, error){goldenMetrics, goldenAccumulations, goldenLlamas} {
		ran, e := kind(t, world.Size())
		if n += ran; e != nil {
			err = e
			break
		}
	}
	if err = world.Close(err); err != nil || n == 0 {
		t.Fatalf("after %d fixtures: %v", n, err)
	}
}

// goldenMetrics runs the cases of a size. Those in which a rank fails end the world, and run on
// goroutines only.
func goldenMetrics(t *testing.T, size int) (n int, err error) {
	for _, path := range golden.Glob(t, "train/dataloader/gather_for_metrics_*.json") {
		var file struct{ Cases []metricsCase }
		golden.JSON(t, path, &file)
	cases:
		for i := range file.Cases {
			c := &file.Cases[i]
			for _, r := range c.Ranks {
				if r.Error != "" || int(c.World) != size {
					continue cases
				}
			}
			n++
			if err := c.run(t.Context()); err != nil {
				return n, fmt.Errorf("%s, case %d: %w", filepath.Base(path), i, err)
			}
		}
	}
	return n, nil
}

func goldenAccumulations(t *testing.T, size int) (n int, err error) {
	for _, path := range golden.Glob(t, "train/accumulate/*.json") {
		var file struct {
			Cases   []accumulateCase
			Trigger []triggerRank `json:"trigger_sync_in_backward"`
		}
		golden.JSON(t, path, &file)
		if len(file.Trigger) == size {
			n++
			if err := triggerSync(t.Context(), file.Trigger); err != nil {
				return n, fmt.Errorf("trigger_sync_in_backward: %w", err)
			}
		}
		for i := range file.Cases {
			c := &file.Cases[i]
			if len(c.Ranks) == 0 || int(c.World) != size {
				continue
			}
			n++
			if err := c.run(t.Context()); err != nil {
				return n, fmt.Errorf("%s, case %d: %w", filepath.Base(path), i, err)
			}
		}
	}
	return n, nil
}

func goldenLlamas(t *testing.T, size int) (n int, err error) {
	for _, path := range golden.Glob(t, "train/ddp/trace.json") {
		for _, c := range llamaCases(t, path) {
			if int(c.World) != size {
				continue
			}
			n++
			if err := c.run(t); err != nil {
				return n, fmt.Errorf("%s: %w", c.Name, err)
			}
			if !c.Zero1 {
				continue
			}
			c.stage = 1
			if err := c.run(t); err != nil {
				return n, fmt.Errorf("%s, ZeRO-1: %w", c.Name, err)
			}
		}
	}
	return n, nil
}
