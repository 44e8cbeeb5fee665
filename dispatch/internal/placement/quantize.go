package placement

import (
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/meta"
)

// checkQuantize returns an error for a plan with converted weights on the disk and no folder for
// them, or with coded weights on GPUs.
func checkQuantize(skeleton *meta.Model, plan *devicemap.Plan, o *Settings) error {
	loaded := o.LoadedBytes(skeleton)
	if o.Quantize != meta.QuantNone && len(loaded) == 0 {
		return fmt.Errorf("dispatch: this model has no weights that can be converted to %v: they are quantised already, or the length of their rows is not a multiple of %d", o.Quantize, meta.ConvertColumns())
	}
	all := int64(0)
	for _, bytes := range loaded {
		all += bytes
	}
	for _, d := range plan.Devices {
		if d.Device == devicemap.CPU || d.WeightsBytes == 0 || gpus.Is(d.Device) && !o.Coded {
			continue
		}
		for path, p := range skeleton.Root.AllParams() {
			if loaded[p] == 0 {
				continue
			}
			device, ok := plan.Map.Device(path)
			if streams := device == devicemap.Disk && (o.CacheDir != "" || o.ConvertsAgain(plan) != nil); !ok || device != devicemap.CPU && !streams && (o.Coded || !gpus.Is(device)) {
				return &ConversionError{Format: o.LoadedAs(), Path: path, Device: device, Bytes: all}
			}
		}
	}
	return nil
}

// A ConversionError reports that a plan places weights to be converted on a device that cannot hold
// converted weights.
type ConversionError struct {
	Format meta.QuantFormat
	Path   string           // of the first parameter on another device
	Device devicemap.Device // its device; "" if there are several
	Bytes  int64            // size of all converted weights
}

// Error names the parameter and its device, and says how to avoid the error.
func (e *ConversionError) Error() string {
	return fmt.Sprintf("dispatch: %s is not on the cpu, and weights converted to %v need a folder on other devices: set --cache-dir, give the cpu the %s that all of them take, or use the weights as they are stored",
		e.Path, e.Format, devicemap.FormatSize(e.Bytes))
}
