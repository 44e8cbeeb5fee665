//go:build cuda

package dispatch

import "github.com/heftai/heft/internal/backend"

func init() { hostGPUs = func() ([]GPU, string) { return nil, "a test asks for GPUs" } }

// OnHostGPUs is o for the GPUs of this machine.
func (o Options) OnHostGPUs() Options {
	o.gpus = &gpuTier{list: listGPUs, supports: gpuSupports}
	return o
}

// OnOneGPUTwice is o for a machine with one GPU, which is GPU 0 and GPU 1.
func (o Options) OnOneGPUTwice() Options {
	o = o.OnHostGPUs()
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
