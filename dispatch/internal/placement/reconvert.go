package placement

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/meta"
)

// ErrNoFolder is the reason why a model without CacheDir stores no converted weights.
var ErrNoFolder = errors.New("no cache folder for converted weights: use --cache-dir, a larger --max-memory, or the weights as stored")

// ConvertsAgain reports whether a plan has converted weights on the disk that no file can store,
// as far as a plan can tell, and that may be converted in each pass. Blocks of GPUs may not be.
func (o *Settings) ConvertsAgain(plan *devicemap.Plan) bool {
	return o.Quantize != meta.QuantNone && !o.Coded && o.CacheDir == "" &&
		!slices.ContainsFunc(plan.Devices, func(d devicemap.DevicePlan) bool { return gpus.Is(d.Device) && d.WeightsBytes > 0 })
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
