package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// skeletonAt is a model's shape, from a bare config.json or with the shards' headers. The
// checkpoint is nil where there are no shards; the caller closes it.
func skeletonAt(path string) (*meta.Model, *loader.Checkpoint, error) {
	bare := func(config *meta.Config, err error) (*meta.Model, *loader.Checkpoint, error) {
		if err != nil {
			return nil, nil, err
		}
		skeleton, err := meta.New(config, nil)
		return skeleton, nil, err
	}
	if strings.HasSuffix(path, ".json") && !strings.HasSuffix(path, ".safetensors.index.json") {
		return bare(meta.ReadConfigFile(path))
	}
	s, err := newSource(path)
	if err != nil {
		skeleton, err := skeletonOnHub(context.Background(), err)
		return skeleton, nil, err
	}
	skeleton, checkpoint, err := s.open()
	if err != nil && noWeights(s) {
		return bare(s.config())
	}
	return skeleton, checkpoint, err
}

// printJSON prints one indented object.
func printJSON(out cmdline.Output, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// probePlan measures this machine for a plan, in a quarter of its free memory at most.
// What cannot be measured is not known.
func probePlan(ctx context.Context, o dispatch.Options, checkpoint *loader.Checkpoint) dispatch.Speeds {
	return known(dispatch.Probe(ctx, o, checkpoint, dispatch.HostMemory()/4))
}

func known(s dispatch.Speeds, err error) dispatch.Speeds {
	if err != nil {
		slog.Warn("the machine's speeds could not be measured", "reason", err)
	}
	return s
}

// predictedLine says for people what is predicted; what is not known is left out.
func predictedLine(r dispatch.Rates) string {
	var parts []string
	add := func(format string, v *float64) {
		if v != nil {
			parts = append(parts, fmt.Sprintf(format, *v))
		}
	}
	add("%.3g s to load", r.LoadSeconds)
	add("%.3g s to the first token of a cold prompt of 8", r.FirstTokenSeconds)
	add("%.3g tokens/s", r.TokensPerSecond)
	if r.DiskBytesPerToken != nil {
		parts = append(parts, devicemap.FormatSize(int64(*r.DiskBytesPerToken))+" from the disk a token")
	}
	return "predicted for this machine: " + strings.Join(parts, ", ") + "\n"
}

// loadedAs is what [dispatch.Predict] calls the weights' form: the format that they are
// converted to, or dtype.
func loadedAs(f meta.QuantFormat, dtype string) string {
	if f != meta.QuantNone {
		return f.String()
	}
	return dtype
}

// A reporter answers GET /plan. The machine is measured when somebody first asks for it,
// so that the start, and the first tokens, have it to themselves.
type reporter struct {
	model  *dispatch.Model
	room   int64 // bytes that the plan leaves free
	once   sync.Once
	report *dispatch.Report
}

// leastRoom is what the probe takes in any case, out of the runtime's own share.
const leastRoom = 32 << 20

func newReporter(model *dispatch.Model, plan devicemap.Plan) *reporter {
	host := plan.Device(devicemap.CPU)
	return &reporter{model: model, room: max(host.LimitBytes-host.Used(), leastRoom), report: dispatch.NewReport(plan)}
}

// now is the plan with what is predicted and what was measured so far.
func (r *reporter) now() any {
	r.once.Do(func() {
		speeds := known(r.model.Probe(context.Background(), r.room)) // ends within half a second
		r.report.Predicted = dispatch.Predict(r.model.Skeleton(), r.report.Plan, loadedAs(r.model.Quantized(), ""), speeds)
	})
	return r.report.With(r.model.Measured())
}
