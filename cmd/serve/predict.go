package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// skeletonAt builds the skeleton of a model from a bare config.json, or with the headers of its
// shards. The checkpoint is nil if there are no shards. Otherwise the caller closes it.
func skeletonAt(path string) (*meta.Model, *loader.Checkpoint, error) {
	if strings.HasSuffix(path, ".json") && !strings.HasSuffix(path, ".safetensors.index.json") {
		config, err := meta.ReadConfigFile(path)
		return shapeOf(path, config, err)
	}
	s, err := newSource(path)
	if err != nil {
		skeleton, err := skeletonOnHub(context.Background(), err)
		return skeleton, nil, err
	}
	skeleton, checkpoint, err := s.open()
	if err != nil && noWeights(s) {
		config, err := s.config()
		return shapeOf(s.where(), config, err)
	}
	return skeleton, checkpoint, err
}

// shapeOf returns the skeleton that the config from where describes by itself.
func shapeOf(where string, config *meta.Config, err error) (*meta.Model, *loader.Checkpoint, error) {
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", where, err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", where, err)
	}
	return skeleton, nil, nil
}

// printJSON prints v as an indented JSON object.
func printJSON(out cmdline.Output, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// probePlan measures this machine for a plan. It uses at most a quarter of the free memory. A rate
// that cannot be measured stays unknown.
func probePlan(ctx context.Context, o dispatch.Options, checkpoint *loader.Checkpoint) dispatch.MachineSpeed {
	return known(dispatch.Probe(ctx, o, checkpoint, dispatch.HostMemory()/4))
}

// probeDisk measures the disk of a folder in bytes per second. It returns 0 if that fails or there
// is no folder.
func probeDisk(ctx context.Context, folder string) float64 {
	if folder == "" {
		return 0
	}
	rate, err := dispatch.ProbeDisk(ctx, folder)
	if err != nil {
		slog.Warn("the disk's rate could not be measured or kept; --disk-rate sets it", "folder", folder, "reason", err)
	}
	return rate
}

// parseRate parses a number of bytes per second. "" means 0.
func parseRate(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	size, _ := strings.CutSuffix(text, "/s") // "/s" is optional
	n, err := devicemap.ParseSize(size)
	if err == nil && n <= 0 {
		err = fmt.Errorf("got %d bytes per second, want more than 0", n)
	}
	if err != nil {
		return 0, fmt.Errorf("%.40q: %w; a rate is 2GB/s or 500MiB/s", text, err)
	}
	return float64(n), nil
}

// helpLine describes what would make the model faster.
func helpLine(r *dispatch.Report) string {
	if choices := helpChoices(r); choices != nil {
		return "what would help most: " + strings.Join(choices, "; ") + "\n"
	}
	return ""
}

// helpChoices returns the changes that would make the model faster, with the predicted speeds.
func helpChoices(r *dispatch.Report) (choices []string) {
	if r.Predicted.TokensPerSecond == nil {
		return nil
	}
	for _, h := range r.Helps {
		what := "--quantize " + h.Format
		switch {
		case h.MoreBytes > 0:
			what = "+" + devicemap.FormatSize(h.MoreBytes)
		case h.Compress != "":
			what = fmt.Sprintf("--compress %s (the same answers, %s in --cache-dir)", h.Compress, devicemap.FormatSize(h.KeptBytes))
		}
		choices = append(choices, fmt.Sprintf("%s: %s → %s tokens/s", what, figure(*r.Predicted.TokensPerSecond), figure(h.TokensPerSecond)))
	}
	return choices
}

func known(s dispatch.MachineSpeed, err error) dispatch.MachineSpeed {
	if err != nil {
		slog.Warn("the machine's speeds could not be measured", "reason", err)
	}
	return s
}

// predictedLine returns a line with the predicted speeds that are known.
func predictedLine(r dispatch.ModelSpeed) string {
	var parts []string
	add := func(v *float64, what string) {
		if v != nil {
			parts = append(parts, figure(*v)+what)
		}
	}
	add(r.LoadSeconds, " s to load")
	add(r.FirstTokenSeconds, " s to the first token of a cold prompt of 8")
	add(r.TokensPerSecond, " tokens/s")
	if disk := r.DiskBytesPerToken; disk != nil && *disk > 0 {
		parts = append(parts, devicemap.FormatSize(int64(*disk))+" from the disk per token")
	}
	if parts == nil {
		return ""
	}
	return "predicted for this machine: " + strings.Join(parts, ", ") + "\n"
}

// figure formats a prediction with three significant digits, or all digits before the decimal
// point.
func figure(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// compressName returns "exact" for coded weights, and otherwise "none".
func compressName(f meta.QuantFormat) string {
	if f.Row().Exact {
		return dispatch.CompressExact.String()
	}
	return dispatch.CompressNone.String()
}

// loadedAs returns the form of the weights for [dispatch.Predict]: the format that they are
// converted to, or dtype.
func loadedAs(f meta.QuantFormat, dtype string) string {
	if f != meta.QuantNone {
		return f.String()
	}
	return dtype
}
