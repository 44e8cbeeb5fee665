package dispatch

import (
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/meta"
)

// Quantized returns Options.Quantize: the format that the model's weights are converted to, or QuantNone.
func (m *Model) Quantized() meta.QuantFormat { return m.options.Quantize }

// checkQuantize returns an error for a plan with converted weights on the disk and no folder for
// them, or with coded weights on GPUs.
func checkQuantize(skeleton *meta.Model, plan *devicemap.Plan, o *Options) error {
	loaded := o.loadedBytes(skeleton)
	if o.Quantize != meta.QuantNone && len(loaded) == 0 {
		return fmt.Errorf("dispatch: this model has no weights that can be converted to %v: they are quantised already, or the length of their rows is not a multiple of %d", o.Quantize, meta.ConvertColumns())
	}
	all := int64(0)
	for _, bytes := range loaded {
		all += bytes
	}
	for _, d := range plan.Devices {
		if d.Device == devicemap.CPU || d.WeightsBytes == 0 || isGPU(d.Device) && !o.coded {
			continue
		}
		for path, p := range skeleton.Root.AllParams() {
			if loaded[p] == 0 {
				continue
			}
			device, ok := plan.Map.Device(path)
			if streams := device == devicemap.Disk && (o.CacheDir != "" || o.convertsAgain(plan)); !ok || device != devicemap.CPU && !streams && (o.coded || !isGPU(device)) {
				return &QuantizeError{Format: o.loadedAs(), Path: path, Device: device, Bytes: all}
			}
		}
	}
	return nil
}

// quantized reports whether dtype names a format that weights are converted to.
func quantized(dtype string) (meta.QuantFormat, bool) {
	if dtype == meta.QuantCoded.String() {
		return meta.QuantCoded, true
	}
	f, ok := meta.ParseQuantize(dtype)
	return f, ok && f != meta.QuantNone
}
