package placement

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/meta"
)

// ErrNoFolder is the reason why a model without CacheDir stores no converted weights.
var ErrNoFolder = errors.New("no cache folder for converted weights: use --cache-dir, a larger --max-memory, or the weights as stored")

// ConvertsAgain returns the reason why no file can store converted weights that a plan has on the
// disk, as far as a plan can tell. They are then converted in each pass. It returns nil if a file
// can, or if blocks run on GPUs, which cannot convert weights in each pass.
func (o *Settings) ConvertsAgain(plan *devicemap.Plan) error {
	switch {
	case o.Quantize == meta.QuantNone || o.Coded,
		slices.ContainsFunc(plan.Devices, func(d devicemap.DevicePlan) bool { return gpus.Is(d.Device) && d.WeightsBytes > 0 }):
		return nil
	case o.CacheDir == "":
		return ErrNoFolder
	case o.canKeep != nil:
		if err := o.canKeep(); err != nil {
			return &residency.SidecarError{Dir: o.CacheDir, Err: err}
		}
	}
	return nil
}

// roomToConvert returns the bytes of the largest unit after its conversion, if weights of a plan are
// converted in each pass: a pass has one unit in memory at a time.
func (p *placer) roomToConvert(plan *devicemap.Plan, o *Settings) (most int64) {
	if _, after := o.ConvertedOnDisk(p.skeleton, plan); after == 0 || o.ConvertsAgain(plan) == nil {
		return 0
	}
	for _, u := range p.program.Units {
		var bytes int64
		for _, param := range gpus.UnitParams(u) {
			bytes += int64(hostmem.Up(int(p.loaded[param]), os.Getpagesize()))
		}
		most = max(most, bytes+bytes/256) // each copy is aligned
	}
	return most
}

// CountAgain counts a token's weights on the disk as stored in a plan, and warns of the cost.
func (o *Settings) CountAgain(skeleton *meta.Model, plan *devicemap.Plan, why error) {
	before, after := o.ConvertedOnDisk(skeleton, plan)
	if after == 0 {
		return
	}
	plan.DiskBytesPerToken = int64(float64(plan.DiskBytesPerToken) * before / after)
	plan.ExpertBytesPerToken = int64(float64(plan.ExpertBytesPerToken) * before / after)
	plan.Warnings = append(plan.Warnings, fmt.Sprintf("%s of weights that do not stay in memory are read and converted again in each pass, which is several times slower than reading converted ones: %v",
		devicemap.FormatSize(int64(before)), why))
}

// ConvertedOnDisk returns the bytes of the converted weights on the disk, before and after the
// conversion.
func (o *Settings) ConvertedOnDisk(skeleton *meta.Model, plan *devicemap.Plan) (before, after float64) {
	loaded := o.LoadedBytes(skeleton)
	for path, p := range skeleton.Root.AllParams() {
		if device, _ := plan.Map.Device(path); device == devicemap.Disk && loaded[p] > 0 {
			before, after = before+float64(p.Bytes()), after+float64(loaded[p])
		}
	}
	return before, after
}
