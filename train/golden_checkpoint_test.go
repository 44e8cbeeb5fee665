package train

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// listed is a module of named parameters, in order.
type listed struct {
	names  []string
	params []*tensor.Parameter
}

func (l *listed) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) {
		for i, p := range l.params {
			if !yield(l.names[i], p) {
				return
			}
		}
	}
}

// saved is nn.Sequential(Linear(2, 3), act, Linear(3, 1)), whose states the fixtures list.
func saved() *listed {
	l := &listed{}
	for _, p := range []struct {
		name  string
		shape []int
	}{{"0.weight", []int{3, 2}}, {"0.bias", []int{3}}, {"2.weight", []int{1, 3}}, {"2.bias", []int{1}}} {
		n := 1
		for _, d := range p.shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i) / 10
		}
		l.names, l.params = append(l.names, p.name), append(l.params, tensor.NewParameter(x, p.shape...))
	}
	return l
}

// ours is Heft's name of a file of a checkpoint: pickles are JSON or
// safetensors here.
func ours(name string) string {
	dir, base := filepath.Split(name)
	switch {
	case base == "pytorch_model.bin":
		base = checkpoint.ModelFile
	case strings.HasPrefix(base, "optimizer"):
		base = strings.TrimSuffix(base, ".bin") + ".safetensors"
	case strings.HasSuffix(base, ".bin"), strings.HasSuffix(base, ".pkl"):
		base = base[:len(base)-4] + ".json"
	}
	return dir + base
}

// listing are the files below dir.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			name, _ := filepath.Rel(dir, path)
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

type checkpointRun struct {
	models, ranks      int
	scheduler, counter bool
	project            ProjectConfiguration
}

// save makes the run's accelerators and lets them save times times, calling after.
func (c checkpointRun) save(t *testing.T, dir string, times int, after func(*Accelerator)) error {
	t.Helper()
	return Launch(t.Context(), max(1, c.ranks), func(ctx context.Context, w *World) error {
		a, err := New(Config{World: w, Project: c.project})
		if err != nil {
			return err
		}
		for range max(1, c.models) {
			m := saved()
			adam, err := optim.NewAdamW(Params(m), optim.AdamOptions{LR: 0.01})
			if err != nil {
				return err
			}
			var opt optim.Optimizer = adam
			if err := a.Prepare(m, &opt); err != nil {
				return err
			}
			if c.scheduler && len(a.rank.Schedulers) == 0 {
				var s optim.Scheduler = optim.NewLambda(adam, func(n int) float64 { return 1 / float64(1+n) })
				if err := a.Prepare(&s); err != nil {
					return err
				}
			}
		}
		if c.counter {
			if err := a.RegisterForCheckpointing(new(struct{ N int })); err != nil {
				return err
			}
		}
		for range times {
			if _, err := a.SaveState(ctx, dir); err != nil {
				return err
			}
			if after != nil && a.IsMainProcess() {
				after(a)
			}
		}
		return nil
	})
}

func TestGoldenCheckpointListings(t *testing.T) {
	n := 0
	for _, path := range golden.Glob(t, "train/checkpoint/semantics.json") {
		var file struct{ Listings map[string]any }
		golden.JSON(t, path, &file)
		for name, want := range file.Listings {
			if check := checkListing(name); check != nil {
				n++
				t.Run(name, func(t *testing.T) { check(t, want) })
			}
		}
	}
	golden.Count(t, "train/checkpoint/listings", n)
}

// checkListing reproduces a listing; nil for others.
func checkListing(name string) func(*testing.T, any) {
	everything := checkpointRun{scheduler: true, counter: true}
	automatic := everything
	automatic.project.AutomaticCheckpointNaming = true
	two := everything
	two.models = 2
	ranks := automatic
	ranks.ranks = 2
	switch name {
	case "automatic_naming_first_save":
		return automatic.files("", 1)
	case "automatic_naming_second_save":
		return automatic.folders(2)
	case "explicit_dir_no_scheduler_no_custom":
		return checkpointRun{}.files("my", 1)
	case "two_models_two_optimizers":
		return two.files("my", 1)
	case "safe_serialization_false":
		return everything.files("my", 1)
	case "two_processes":
		return ranks.files("", 1)
	case "automatic_save_iteration_after":
		return automatic.iteration
	case "restart_without_setting_iteration":
		return automatic.restart
	case "load_missing":
		return everything.missing
	case "numeric_order":
		return numericOrder
	case "save_model":
		return savedModel("model", 0)
	case "save_model_max_shard_size_40_bytes":
		return savedModel("sharded", 40)
	}
	if limit, ok := strings.CutPrefix(name, "total_limit_"); ok {
		limit, _, _ = strings.Cut(limit, "_")
		automatic.project.TotalLimit, _ = strconv.Atoi(limit)
		return automatic.limited
	}
	return nil
}

func oursOf(t *testing.T, v any) []string {
	t.Helper()
	list, _ := v.([]any)
	var all []string
	for _, x := range list {
		s, ok := x.(string)
		if !ok {
			t.Fatalf("the fixture is %v", v)
		}
		all = append(all, ours(s))
	}
	return all
}

func (c checkpointRun) files(dir string, times int) func(*testing.T, any) {
	return func(t *testing.T, want any) {
		root := t.TempDir()
		c.project.ProjectDir = root
		if err := c.save(t, filepath.Join(root, dir), times, nil); err != nil {
			t.Fatal(err)
		}
		sorted := oursOf(t, want)
		slices.Sort(sorted)
		got := slices.DeleteFunc(listing(t, root), func(name string) bool { return filepath.Base(name) == checkpoint.ChecksumFile }) // Accelerate has none
		if !slices.Equal(got, sorted) {
			t.Errorf("files %v, want %v", got, sorted)
		}
	}
}

func folders(t *testing.T, root string) []string {
	t.Helper()
	names, err := checkpoint.List(filepath.Join(root, "checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func (c checkpointRun) folders(times int) func(*testing.T, any) {
	return func(t *testing.T, want any) {
		c.project.ProjectDir = t.TempDir()
		if err := c.save(t, "", times, nil); err != nil {
			t.Fatal(err)
		}
		if got := folders(t, c.project.ProjectDir); !slices.Equal(got, oursOf(t, want)) {
			t.Errorf("folders %v, want %v", got, want)
		}
	}
}

func (c checkpointRun) limited(t *testing.T, want any) {
	c.project.ProjectDir = t.TempDir()
	rounds, _ := want.([]any)
	i := 0
	err := c.save(t, "", len(rounds), func(*Accelerator) {
		if got := folders(t, c.project.ProjectDir); !slices.Equal(got, oursOf(t, rounds[i])) {
			t.Errorf("after save %d: %v, want %v", i, got, rounds[i])
		}
		i++
	})
	if err != nil || i != len(rounds) {
		t.Errorf("%d saves: %v", i, err)
	}
}

func (c checkpointRun) iteration(t *testing.T, want any) {
	c.project.ProjectDir = t.TempDir()
	n, _ := want.(float64)
	var last int
	if err := c.save(t, "", int(n), func(a *Accelerator) { last = a.SaveIteration() }); err != nil || last != int(n) {
		t.Errorf("after %v saves the iteration is %d (%v)", want, last, err)
	}
}

func (c checkpointRun) restart(t *testing.T, _ any) {
	c.project.ProjectDir = t.TempDir()
	c.project.TotalLimit = 1
	if err := c.save(t, "", 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.save(t, "", 1, nil); !errors.Is(err, ErrCheckpointExists) || !strings.Contains(err.Error(), "checkpoint_0") {
		t.Errorf("saved over a checkpoint: %v", err)
	}
	if got := folders(t, c.project.ProjectDir); !slices.Equal(got, []string{"checkpoint_0"}) {
		t.Errorf("what failed left %v", got)
	}
}

func (c checkpointRun) missing(t *testing.T, want any) {
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.LoadState(t.Context(), "nowhere"); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("%v, want as %v", err, want)
	}
}

func numericOrder(t *testing.T, want any) {
	root := t.TempDir()
	names := oursOf(t, want)
	for i := range names {
		if err := os.MkdirAll(filepath.Join(root, "checkpoints", names[len(names)-1-i]), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got := folders(t, root); !slices.Equal(got, names) {
		t.Errorf("order %v, want %v", got, names)
	}
}

func savedModel(name string, limit int64) func(*testing.T, any) {
	return func(t *testing.T, want any) {
		a, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		if err := SaveModel(t.Context(), a, saved(), filepath.Join(root, name), SaveModelOptions{MaxShardSize: limit}); err != nil {
			t.Fatal(err)
		}
		if got := listing(t, root); !slices.Equal(got, oursOf(t, want)) {
			t.Errorf("files %v, want %v", got, want)
		}
	}
}

func TestGoldenCheckpointIndex(t *testing.T) {
	n := 0
	for _, path := range golden.Glob(t, "train/checkpoint/semantics.json") {
		var file struct {
			Listings struct {
				Index *struct {
					WeightMap map[string]string `json:"weight_map"`
				} `json:"save_model_sharded_index"`
			}
		}
		golden.JSON(t, path, &file)
		if file.Listings.Index == nil {
			continue
		}
		n++
		a, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := SaveModel(t.Context(), a, saved(), dir, SaveModelOptions{MaxShardSize: 40}); err != nil {
			t.Fatal(err)
		}
		for tensor, shard := range file.Listings.Index.WeightMap {
			ck, err := loader.Open(filepath.Join(dir, shard))
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := ck.Lookup(tensor); !ok {
				t.Errorf("%s is not in %s", tensor, shard)
			}
			_ = ck.Close()
		}
	}
	golden.Count(t, "train/checkpoint/index", n)
}
