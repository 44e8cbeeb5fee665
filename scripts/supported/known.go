package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

const (
	knownBegin = "<!-- known: begin (go generate ./meta) -->\n"
	knownEnd   = "<!-- known: end -->"
)

// A known model is one whose published config is on record; see scripts/make-known-models.py.
type known struct {
	Name     string          `json:"name"`
	Billions float64         `json:"billions"` // of parameters
	Config   json.RawMessage `json:"config"`

	parameters int64
}

// knownLimits are the limits of the memory that the table has columns for.
var knownLimits = []string{"16GiB", "24GiB", "64GiB"}

// knownModels reads the models of a folder, those with the fewest parameters first. It fails where the
// number of parameters differs from the published one by a hundredth or more.
func knownModels(folder string) ([]known, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no configs in %s: %w", folder, err)
	}
	var models []known
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var k known
		if err := json.Unmarshal(data, &k); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		skeleton, err := k.skeleton()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		k.parameters = skeleton.Root.NumParameters()
		if got := float64(k.parameters) / 1e9; math.Abs(got-k.Billions) >= k.Billions/100 {
			return nil, fmt.Errorf("%s: %.2f billion parameters, want %.2f", file, got, k.Billions)
		}
		models = append(models, k)
	}
	slices.SortFunc(models, func(a, b known) int { return int(math.Copysign(1, float64(a.parameters-b.parameters))) })
	return models, nil
}

func (k *known) skeleton() (*meta.Model, error) {
	config, err := meta.ReadConfig(k.Config)
	if err != nil {
		return nil, err
	}
	return meta.New(config, nil)
}

// knownTable writes what the models of a folder need.
func knownTable(out *bytes.Buffer, folder string) error {
	models, err := knownModels(folder)
	if err != nil {
		return err
	}
	out.WriteString("| model | weights as published | all in memory | with q8_0 | with q4_0 | minimum | KV, 1k tokens | from disk per token, 16 / 24 / 64 GiB | the same with q4_0 |\n|---|---|---|---|---|---|---|---|---|\n")
	for i := range models {
		if err := models[i].row(out); err != nil {
			return fmt.Errorf("%s: %w", models[i].Name, err)
		}
	}
	return nil
}

// row writes the row of a model.
func (k *known) row(out *bytes.Buffer) error {
	skeleton, err := k.skeleton()
	if err != nil {
		return err
	}
	var all []string
	var stored dispatch.MemoryEstimate
	for _, format := range []meta.QuantFormat{meta.QuantNone, meta.QuantQ8, meta.QuantQ4} {
		o := knownOptions(format)
		needs, err := dispatch.EstimateMemory(skeleton, o, "")
		if err != nil {
			return err
		}
		if format == meta.QuantNone {
			stored = needs
		}
		all = append(all, size(needs.All))
	}
	plain, err := diskBytes(skeleton, meta.QuantNone)
	if err != nil {
		return err
	}
	quantised, err := diskBytes(skeleton, meta.QuantQ4)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", k.Name, size(weights(skeleton)), all[0], all[1], all[2], size(stored.Least), size(stored.KVPer1K), plain, quantised)
	return nil
}

// weights returns the bytes of the weights as published.
func weights(m *meta.Model) (sum int64) {
	for _, p := range m.Root.AllParams() {
		if p.SameAs == nil {
			sum += p.Bytes()
		}
	}
	return sum
}

// knownOptions are those of serve with its defaults, on a machine of two threads without vector instructions,
// so that the table is the same wherever it is made.
func knownOptions(format meta.QuantFormat) dispatch.Options {
	return dispatch.Options{Serving: true, Lazy: true, Threads: 2, Variant: "go", MaxSequences: 8, Quantize: format, Compress: dispatch.CompressAuto, CacheDir: "cache"}
}

// diskBytes returns what a token reads from the disk under each of the limits.
func diskBytes(skeleton *meta.Model, format meta.QuantFormat) (string, error) {
	text := ""
	for i, limit := range knownLimits {
		o := knownOptions(format)
		memory, err := devicemap.ParseMaxMemory("cpu=" + limit)
		if err != nil {
			return "", err
		}
		o.MaxMemory = memory
		plan, _, err := dispatch.Plan(skeleton, o)
		if err != nil {
			return "", err
		}
		if i > 0 {
			text += " / "
		}
		text += size(plan.DiskBytesPerToken)
	}
	return text, nil
}

// size formats bytes in three digits; nothing is a dash.
func size(n int64) string {
	if n == 0 {
		return "–"
	}
	return devicemap.FormatSize(n)
}
