package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
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

// childOf is set in the processes of TestProcessesTrainAsGoroutines.
const childOf = "HEFT_TEST_RANKS"

// Ranks in processes of their own train to the bits of ranks in one process, with every plugin.
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
