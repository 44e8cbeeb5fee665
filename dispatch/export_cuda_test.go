//go:build cuda

package dispatch

import "github.com/heftai/heft/internal/backend"

// OnOneGPUTwice is o for a machine with one GPU, which is GPU 0 and GPU 1.
func (o Options) OnOneGPUTwice() Options {
	tier := o.gpuTier()
	gpus, reason := tier.list()
	second := gpus[0]
	second.Number = 1
	gpus = append(gpus[:1:1], second)
	open := tier.open
	tier.list = func() ([]GPU, string) { return gpus, reason }
	tier.open = func(_ int, host backend.Backend) (backend.Backend, error) { return open(0, host) }
	o.gpus = &tier
	return o
}
