package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// planCmd is serve plan.
type planCmd struct {
	modelFlags
	placeFlags
	sizeFlags
	adapterFlags
	NoSplit        string `help:"Never split these classes over devices (default: the model's own)." placeholder:"CLASS,…"`
	OffloadBuffers bool   `help:"Offload buffers with their layers (Accelerate's policies)."`
	NoProbe        bool   `help:"Do not measure this machine (0.4 s), and predict no speeds."`
	DiskRate       string `help:"Predict for a disk of this rate, such as 2GB/s, instead of measuring one." placeholder:"RATE"`
	Trace          string `help:"Predict expert cache hits from routing recorded by serve bench --trace." placeholder:"FILE"`
	Draft          string `help:"Include the draft model of serve --draft self in the plan." placeholder:"self"`
	JSON           bool   `name:"json" help:"Print one JSON object."`
}

// Run plans from config.json and, if they exist, the headers of the shards.
func (c *planCmd) Run(ctx context.Context, out cmdline.Output) error {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // 42 MiB instead of 34 for a trillion parameters, in three quarters of the time
	path, o, disk, err := c.asked()
	if err != nil {
		return err
	}
	skeleton, checkpoint, err := skeletonAt(path)
	if err != nil {
		return err
	}
	if checkpoint != nil {
		defer checkpoint.Close()
	}
	if err := cmp.Or(servable(path, skeleton, checkpoint), c.checkLength(skeleton)); err != nil {
		return err
	}
	c.refine(&o.DeviceMap)
	curve, ignored := c.addRouting(skeleton, &o)
	planner := dispatch.NewPlanner(skeleton)
	asked := o.KnownCoding(skeleton, checkpoint)
	plan, o, self, err := c.plan(planner, asked)
	if err != nil {
		return err
	}
	plan.Warnings = append(plan.Warnings, ignored...)
	report := dispatch.NewReport(plan)
	report.KVTokens, report.MaxModelLen, report.Routing, report.SelfDraft = o.KVTokens, o.MaxModelLen, curve, self
	report.Coding = dispatch.CodingOf(skeleton, &plan, &o)
	asked.MaxSequences = o.MaxSequences
	asked = besideDraft(asked, plan, accepted(self))
	report.FitsWith = fitBeside(planner, asked, plan, accepted(self))
	if !c.NoProbe {
		speeds := probePlan(ctx, o, checkpoint)
		if checkpoint == nil && disk == 0 {
			disk = probeDisk(ctx, measurementsDir(c.CacheDir))
		}
		if disk > 0 {
			speeds.DiskBytes = disk
		}
		asked.MaxBatchTokens = o.MaxBatchTokens
		predict(report, planner, asked, loadedAs(o.LoadedAs(), asked.DeviceMap.DType), speeds)
	}
	if c.JSON {
		return printJSON(out, report)
	}
	color, width := terminal(out)
	if err := plan.Render(out, color, width); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%sKV cache of %d tokens; a request may have up to %d\n%s%s%s%s",
		plan.ExplainPaths(), o.KVTokens, o.MaxModelLen, streamsLine(&plan)+codingLine(report.Coding, o.CodedGain())+hitsLine(plan)+fitLine(report.FitsWith)+draftLine(self), predictedLine(report.Predicted)+helpLine(report), unreadLine(skeleton)+warningLines(plan.Warnings),
		hitsTable(o.Routing, curve))
	return err
}

// addRouting adds the recorded routing of the model, and measured hit rates, to o. With --trace it
// adds the given routing alone, and returns its curve of hits. It returns why a file is ignored.
func (c *planCmd) addRouting(skeleton *meta.Model, o *dispatch.Options) (curve []dispatch.RoutingHits, ignored []string) {
	if c.Trace == "" {
		return nil, addKept(c.CacheDir, skeleton, o)
	}
	routing, warning := readRouting(c.Trace, skeleton)
	if routing == nil {
		return nil, []string{warning}
	}
	o.Routing = routing
	return routing.Curve(), nil
}

// plan plans the model. With --draft self it includes the self-draft, unless that is not expected
// to pay off.
func (c *planCmd) plan(planner *dispatch.Planner, o dispatch.Options) (devicemap.Plan, dispatch.Options, *dispatch.SelfDraft, error) {
	plan, alone, err := planner.Plan(o)
	limit := plan.Device(devicemap.CPU).LimitBytes
	if c.Draft != "" && c.Draft != "self" {
		plan.Warnings = append(plan.Warnings, "--draft "+c.Draft+" is not planned: it takes memory that the plan gives to the model")
	}
	if err != nil || c.Draft != "self" || limit == 0 {
		return plan, alone, nil, err
	}
	beside, options, self, err := planSelf(planner.Skeleton(), o, func(bytes int64) dispatch.Options { return within(o, besideOf(limit, bytes), o.StrictMemory) })
	if declined(self) {
		return plan, alone, self, nil
	}
	return beside, options, self, err
}

// besideDraft returns the options o for the part of the limit that a self-draft leaves to the
// model. If self is nil, that is all of it.
func besideDraft(o dispatch.Options, plan devicemap.Plan, self *dispatch.SelfDraft) dispatch.Options {
	limit := plan.Device(devicemap.CPU).LimitBytes
	if self == nil || limit == 0 {
		return o
	}
	return within(o, limit, o.StrictMemory)
}

// fitBeside returns the ways to keep all weights in memory. o are the result of besideDraft. The
// limits in the result include the draft.
func fitBeside(planner *dispatch.Planner, o dispatch.Options, plan devicemap.Plan, self *dispatch.SelfDraft) *dispatch.Fit {
	fit, _ := planner.FitsWith(o, plan)
	if fit == nil || self == nil {
		return fit
	}
	model := fit.LimitBytes
	for missing := self.FullBytes; missing > 0; missing = model - besideOf(fit.LimitBytes, self.FullBytes) {
		fit.LimitBytes += missing
	}
	return fit
}

// draftLine returns selfLine, or "" if there is no draft.
func draftLine(d *dispatch.SelfDraft) string {
	if d == nil {
		return ""
	}
	return selfLine(d) + "\n"
}

// streamsLine describes which prompts stream to a GPU, and where routed experts are.
func streamsLine(plan *devicemap.Plan) (lines string) {
	for _, text := range []string{plan.ExpertPlacement, dispatch.StreamsPrompts(plan)} {
		if text != "" {
			lines += text + "\n"
		}
	}
	return lines
}

// servable returns the error of serve for a model that serve rejects, so that it gets no plan.
// checkpoint is nil if there are no weights.
func servable(path string, skeleton *meta.Model, checkpoint *loader.Checkpoint) error {
	if checkpoint == nil {
		return loader.CheckReadable(path, skeleton)
	}
	_, err := loader.Bind(checkpoint, skeleton)
	return err
}

// asked returns the values of the flags: the model, the options, and the rate of the disk in bytes
// per second, or 0 to measure it.
func (c *planCmd) asked() (path string, o dispatch.Options, disk float64, err error) {
	if path, err = c.path(); err != nil {
		return path, o, disk, err
	}
	if disk, err = parseRate(c.DiskRate); err != nil {
		return path, o, disk, cmdline.Misusef("--disk-rate: %w", err)
	}
	o, err = c.options()
	o.Lazy = c.NoProbe
	if err == nil {
		err = c.place(&o)
	}
	if err == nil {
		o.Adapters, _, err = c.adapters("")
	}
	return path, o, disk, err
}

// refine applies the flags that only plan has to a policy.
func (c *planCmd) refine(p *devicemap.Policy) {
	if c.NoSplit != "" {
		p.NoSplit = strings.Split(c.NoSplit, ",")
	}
	if want := c.dtype(); want != "auto" {
		p.DType = want
	}
	p.OffloadBuffers = c.OffloadBuffers
}

// predict adds the speeds expected for the plan to a report. asked are the options of the plan,
// with the batch size that it chose. dtype is the dtype that weights are loaded as.
func predict(report *dispatch.Report, planner *dispatch.Planner, asked dispatch.Options, dtype string, speeds dispatch.MachineSpeed) {
	report.Probed = &speeds
	report.Predicted = dispatch.Predict(planner.Skeleton(), report.Plan, dtype, speeds)
	report.Helps = planner.WhatHelps(asked, report.Plan, dtype, speeds)
}

// hitsLine describes how many experts the plan expects to find in the cache, and why.
func hitsLine(plan devicemap.Plan) string {
	if plan.ExpertCacheBytes == 0 {
		return ""
	}
	return fmt.Sprintf("experts: a cache of %s is expected to hold %.0f %% of the requested ones, by %s\n",
		devicemap.FormatSize(plan.ExpertCacheBytes), 100*plan.ExpertHitRate, plan.ExpertHitsFrom)
}

// codingLine describes what coded weights of a plan save, or why no weights are coded. gain is
// their speedup in memory, or 0 if the plan has not asked for it.
func codingLine(c *dispatch.Coding, gain float64) string {
	switch {
	case c == nil && gain > 0:
		return fmt.Sprintf("compress: weights are used as stored: speedup when coded %.2f× here\n", gain)
	case c == nil:
		return ""
	}
	const gb = 1e9
	limit := devicemap.FormatSize(c.LimitBytes)
	from := " (if coding makes all of them smaller: no start has recorded it)"
	if c.Found {
		from = " (as an earlier start has found)"
	}
	if c.Gain > 0 {
		return fmt.Sprintf("compress: weights of %.1f GB are coded in %.1f GB, exactly: speedup %.2f× here%s\n", float64(c.PlainBytes)/gb, float64(c.Bytes)/gb, c.Gain, from)
	}
	if c.Fits {
		return fmt.Sprintf("compress: %.1f GB fit in %s, exactly: weights are coded in %.1f GB%s\n", float64(c.PlainBytes)/gb, limit, float64(c.Bytes)/gb, from)
	}
	where := ", which the first start writes to --cache-dir"
	switch {
	case c.InMemory:
		where = ": those in memory are coded, and those on the disk are read as stored"
	case c.Kept:
		where = ", which an earlier start has written to --cache-dir"
	}
	return fmt.Sprintf("compress: weights of %.1f GB are coded in %.1f GB, exactly%s%s\n", float64(c.PlainBytes)/gb, float64(c.Bytes)/gb, where, from)
}

// fitLine describes the flags that would keep all weights in memory.
func fitLine(f *dispatch.Fit) string {
	if flags := fitFlags(f); flags != nil {
		return "all weights fit in memory with " + strings.Join(flags, ", or ") + "\n"
	}
	return ""
}

// fitFlags returns the flags of which each alone would keep all weights in memory.
func fitFlags(f *dispatch.Fit) (flags []string) {
	if f == nil {
		return nil
	}
	if f.Context > 0 {
		flags = append(flags, fmt.Sprintf("--max-model-len %d", f.Context))
	}
	if f.MaxSequences > 0 {
		flags = append(flags, fmt.Sprintf("--max-batch %d", f.MaxSequences))
	}
	if f.Quantize != meta.QuantNone {
		flags = append(flags, "--quantize "+f.Quantize.String())
	}
	return append(flags, "--max-memory cpu="+limitText(f.LimitBytes))
}

// limitText formats a limit for --max-memory: in GiB if rounding to GiB matters little, otherwise
// in MiB.
func limitText(bytes int64) string {
	const step = 1 << 30
	if gib := (bytes + step - 1) / step; gib >= 16 {
		return fmt.Sprintf("%dGiB", gib)
	}
	return fmt.Sprintf("%dMiB", (bytes+1<<20-1)>>20)
}

// unreadLine returns a line about the bytes of a model's files that are never read, or "".
func unreadLine(skeleton *meta.Model) string {
	if skeleton.UnreadBytes == 0 {
		return ""
	}
	return fmt.Sprintf("the published files hold %s more, for predicting several tokens ahead, which Heft does not read\n", devicemap.FormatSize(skeleton.UnreadBytes))
}

// warningLines formats a plan's warnings for people.
func warningLines(warnings []string) string {
	text := ""
	for _, w := range warnings {
		text += "warning: " + w + "\n"
	}
	return text
}

// noWeights reports whether a folder has a config but no weights. A config is enough to plan.
func noWeights(s source) bool {
	found, err := fs.Glob(s.files, "*.safetensors*")
	return err == nil && len(found) == 0
}

// terminal reports whether out is a terminal that shows colours, and its width.
func terminal(out cmdline.Output) (color bool, width int) {
	const usual = 100
	f, ok := out.Writer.(*os.File)
	if !ok {
		return false, usual
	}
	info, err := f.Stat()
	tty := err == nil && info.Mode()&os.ModeCharDevice != 0
	return tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", usual
}

// refused reports whether err is about the command line rather than the machine.
func refused(err error) bool {
	var pins *devicemap.PlacementError
	var path *devicemap.UnknownPathError
	var uncovered *devicemap.UncoveredError
	var quantize *dispatch.QuantizeError
	return errors.As(err, &quantize) || errors.As(err, &pins) || errors.As(err, &path) || errors.As(err, &uncovered)
}
