package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/tune"
)

// fetchInfo describes how this machine reads weights, as measured now or by an earlier process.
type fetchInfo struct {
	tune.Key
	tune.Report
	Measured bool `json:"measured"` // false for the default of the CPU's vendor
	// CodedGain is the speedup of a matrix-vector product with coded bfloat16 weights over plain
	// ones. It is 0 if not measured.
	CodedGain float64 `json:"coded_gain,omitempty"`
	// CodedGainSeveral is the same speedup for eight tokens at once, if it is lower.
	CodedGainSeveral float64 `json:"coded_gain_several,omitempty"`
}

// fetch measures with --probe, and otherwise loads the stored measurement.
func (c *devicesCmd) fetch(ctx context.Context, variant string, threads int) (*fetchInfo, error) {
	info := &fetchInfo{Key: tune.KeyOf(variant, threads)}
	store := tune.Store{Folder: measurementsDir(c.CacheDir)}
	var report *tune.Report
	var err error
	if c.Probe || c.ProbeFile != "" {
		report, err = store.Remeasure(ctx, tune.Options{Variant: variant, Threads: threads})
	} else {
		report = store.Load(info.Key)
	}
	switch {
	case errors.Is(err, tune.ErrUnable):
	case err != nil:
		return nil, err
	case report != nil:
		info.Report, info.Measured = *report, true
		info.CodedGain, info.CodedGainSeveral = report.CodedGain(variant, false), report.CodedGain(variant, true)
		return info, nil
	}
	info.Plan = fetch.Default(info.Vendor)
	return info, nil
}

// readTitles are the memory reads that each role stands for.
var readTitles = [fetch.Roles]string{
	fetch.Floats:      "weights for one token, float32 activations",
	fetch.Pairs:       "weights for one token, bfloat16 activations",
	fetch.Q8:          "q8_0 weights for one token",
	fetch.Q4:          "q4_0 weights for one token",
	fetch.Tokens:      "weights for several tokens, float32 activations",
	fetch.PairTokens:  "weights for several tokens, bfloat16 activations",
	fetch.Codes:       "fp8 weights",
	fetch.MXFP4:       "mxfp4 weights",
	fetch.CodedFloats: "coded weights for one token, float32 activations",
	fetch.CodedPairs:  "coded weights for one token, bfloat16 activations",
	fetch.CodedTokens: "coded weights for several tokens",
	fetch.Packing:     "weights packed for prompts",
	fetch.Cache:       "the KV cache",
	fetch.Roof:        "memory, without arithmetic",
}

// print writes a line for each role: the pattern in use, and the rates of all patterns.
func (f *fetchInfo) print(w io.Writer) {
	if f == nil {
		return
	}
	fmt.Fprintf(w, "\tprocessor\t%s\n", f.Processor)
	for role := range fetch.Roles {
		fmt.Fprintf(w, "\treads of %s\t%s", readTitles[role], f.Plan[role])
		if !f.Measured {
			fmt.Fprint(w, " (default; --probe measures)")
		}
		sep := "; GB/s:"
		for _, rate := range f.Rates[role.String()] {
			fmt.Fprintf(w, "%s %.1f (%s)", sep, rate.BytesPerSecond/1e9, rate.Pattern)
			sep = ","
		}
		fmt.Fprintln(w)
	}
	if f.CodedGain > 0 {
		fmt.Fprintf(w, "\tcoded weights\tspeedup %.2f× over plain bfloat16 weights, rows of %d columns", f.CodedGain, tune.CodedColumns)
		if f.CodedGainSeveral > 0 {
			fmt.Fprintf(w, "; with several sequences at least %.2f×", f.CodedGainSeveral)
		}
		fmt.Fprintln(w)
	}
}
