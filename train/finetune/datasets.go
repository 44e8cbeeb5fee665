package finetune

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/spelling"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/rng"
)

// named is a value with a name, which may be empty.
type named[T any] struct {
	name string
	of   T
}

// count returns the total number of samples in sets.
func count[S any](sets []named[data.Dataset[S]]) (n int) {
	for _, s := range sets {
		n += s.of.Len()
	}
	return n
}

// setName matches NAME=FILE of --eval-data.
var setName = regexp.MustCompile(`^(\w[\w-]*)=(.+)$`)

// evalFiles returns the files of --eval-data with their names.
func (c *job) evalFiles() (files []named[string]) {
	for _, s := range c.EvalData {
		f := named[string]{of: s}
		if m := setName.FindStringSubmatch(s); m != nil {
			f = named[string]{m[1], m[2]}
		}
		files = append(files, f)
	}
	return files
}

// checkData rejects weights without files, and evaluation sets with the same name.
func (c *job) checkData() error {
	if n := len(c.DataWeights); n > 0 && n != len(c.files) {
		return misusef("got %d --data-weights for %d files of --data, want one for each", n, len(c.files))
	}
	for _, w := range c.DataWeights {
		if !(w >= 0) || math.IsInf(w, 0) {
			return misusef("--data-weights: got %v, want 0 or more", w)
		}
	}
	switch {
	case !(c.EvalSplit >= 0 && c.EvalSplit < 1):
		return misusef("got --eval-split %v, want 0 or more and less than 1", c.EvalSplit)
	case c.EvalSplit > 0 && len(c.EvalData) > 0:
		return misusef("got --eval-split and --eval-data, want one of them")
	}
	var names []string
	for _, f := range c.evalFiles() {
		if strings.HasPrefix(f.of, "=") {
			return misusef("--eval-data %s: got no name before =, want NAME=FILE or FILE", f.of)
		}
		if slices.Contains(names, f.name) {
			if f.name == "" {
				return misusef("--eval-data %s: got a second file without a name, want NAME=%s", f.of, f.of)
			}
			return misusef("--eval-data: got two sets with the name %s", f.name)
		}
		names = append(names, f.name)
	}
	return nil
}

// findData rejects files of --data and --eval-data that cannot be opened.
func (c *job) findData() error {
	for _, path := range c.files {
		if err := findFile(path); err != nil {
			return misusef("--data %s: %w", path, err)
		}
	}
	for _, f := range c.evalFiles() {
		if err := findFile(f.of); err != nil {
			return misusef("--eval-data %s: %w", f.of, err)
		}
	}
	return nil
}

// findFile returns why the file at path cannot be read. The error omits the path.
func findFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case info.IsDir():
		return errors.New("got a folder, want a JSONL, CSV or Parquet file")
	case info.Mode().IsRegular(): // opening a pipe would block
		var f *os.File
		if f, err = os.Open(path); err == nil {
			return f.Close()
		}
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return err
}

// judges reports whether evaluations influence the run.
func (c *job) judges() bool {
	return c.LoadBest || c.EarlyStoppingPatience > 0 || c.LRScheduler == "reduce_lr_on_plateau"
}

// ranking returns the metric that ranks evaluations. It returns "" if the sets have no common loss
// and evaluations do not influence the run.
func (c *job) ranking() string {
	if c.usualMetric() && !c.judges() && len(c.EvalData) > 0 && !slices.ContainsFunc(c.evalFiles(), func(f named[string]) bool { return f.name == "" }) {
		return ""
	}
	return c.MetricForBest
}

func (c *job) usualMetric() bool { return strings.TrimPrefix(c.MetricForBest, "eval_") == "loss" }

// rewardMetric matches metrics of rewards whose names come from grpo's data.
var rewardMetric = regexp.MustCompile(`(^|_)rewards/.+/(mean|std)$`)

// checkMetric rejects a --metric-for-best that evaluations do not report.
func (c *job) checkMetric() error {
	want := strings.TrimPrefix(c.ranking(), "eval_")
	if want == "" || c.Method == "grpo" && !c.generates() && c.rewards == nil && rewardMetric.MatchString(want) {
		return nil
	}
	sets := c.evalFiles()
	if len(sets) == 0 {
		sets = []named[string]{{}}
	}
	var known []string
	for _, set := range sets {
		prefix := ""
		if set.name != "" {
			prefix = set.name + "_"
		}
		for _, name := range []string{"runtime", "samples_per_second", "steps_per_second"} {
			if want == prefix+name {
				return nil
			}
		}
		for _, name := range append([]string{"loss"}, c.method().metrics(c)...) {
			known = append(known, prefix+name)
		}
	}
	if slices.Contains(known, want) {
		return nil
	}
	slices.Sort(known)
	advice := ""
	if near := spelling.Nearest(want, known, 1); len(near) > 0 {
		advice = fmt.Sprintf("; did you mean %s?", near[0])
	}
	return misusef("--metric-for-best %s: evaluations have no such metric, want one of %s%s", c.MetricForBest, strings.Join(known, ", "), advice)
}

// evaluated reads the files of --eval-data.
func evaluated[S any](j *job, read func(path string) (made[S], error)) (sets []named[data.Dataset[S]], err error) {
	for _, f := range j.evalFiles() {
		some, err := read(f.of)
		if err != nil {
			return nil, err
		}
		if some.Len() > 0 {
			sets = append(sets, named[data.Dataset[S]]{f.name, some.Dataset})
		}
	}
	return sets, nil
}

// evaluates reports whether there is data to evaluate on.
func (c *job) evaluates() bool { return c.EvalSplit > 0 || len(c.EvalData) > 0 }

// sets reads the files of --data. It also reads those of --eval-data, or holds back the fraction
// --eval-split of the training samples. cut shortens the samples held back.
func sets[S any](j *job, read, readEval func(path string) (made[S], error), cut func(S) S) (all made[S], evals []named[data.Dataset[S]], err error) {
	if j.EvalSplit == 0 {
		if all, err = weighted(j, read); err == nil {
			evals, err = evaluated(j, readEval)
		}
		return all, evals, err
	}
	var held chain[S]
	all, err = weighted(j, func(path string) (made[S], error) {
		some, err := read(path)
		if err != nil || some.Len() == 0 {
			return some, err
		}
		kept, back := divided(some, j.EvalSplit, j.Seed)
		held = append(held, back)
		return kept, nil
	})
	if err == nil && held.Len() == 0 {
		err = misusef("--eval-split: no file of --data has two samples or more")
	}
	set := data.Map[S](held, func(x S) (S, error) { return cut(x), nil })
	return all, []named[data.Dataset[S]]{{of: set}}, err
}

// whole returns a sample unchanged.
func whole[S any](x S) S { return x }

// divided splits samples at random into training samples and the given fraction of evaluation
// samples, at least one. A single sample is for training.
func divided[S any](some made[S], fraction float64, seed uint64) (kept made[S], back subset[S]) {
	count := some.Len()
	n := min(max(int(math.Round(fraction*float64(count))), 1), count-1)
	order := rng.New(seed).Perm(count)
	kept = made[S]{Dataset: newSubset(some.Dataset, order[n:])}
	if some.key != "" {
		kept.key = keyOf("without a part", some.key, fraction, seed)
	}
	return kept, newSubset(some.Dataset, order[:n])
}

// weighted reads the files of --data. Samples of a file with weight w occur w times in the result:
// once per whole unit, and the fractional part of w selects a random part of the samples, which
// depends on the seed.
func weighted[S any](j *job, read func(path string) (made[S], error)) (made[S], error) {
	var all chain[S]
	parts := []any{j.Seed, j.DataWeights}
	known := true
	for i, path := range j.files {
		some, err := read(path)
		if err != nil {
			return made[S]{}, err
		}
		parts, known = append(parts, some.key), known && some.key != ""
		weight := 1.0
		if len(j.DataWeights) > 0 {
			weight = j.DataWeights[i]
		}
		count := some.Len()
		n := int(math.Round(weight * float64(count)))
		for ; n >= count && n > 0 && count > 0; n -= count {
			all = append(all, some.Dataset)
		}
		if n == 0 || count == 0 {
			continue
		}
		part := rng.New(j.Seed + uint64(i)).Perm(count)[:n]
		all = append(all, newSubset(some.Dataset, part))
	}
	out := made[S]{Dataset: all}
	if known {
		out.key = keyOf(parts...)
	}
	if len(all) == 1 {
		out.Dataset = all[0]
	}
	return out, nil
}
