//go:build cuda

package dispatch

import "github.com/heftai/heft/internal/backend/cuda"

const gpuCode = true

func listGPUs() (gpus []GPU, reason string) {
	devices, reason := cuda.List()
	for _, d := range devices {
		gpus = append(gpus, GPU{Number: d.Number, Name: d.Name, MemoryBytes: d.Memory, AvailableBytes: d.Free, Capability: d.Capability, Reason: d.Reason})
	}
	return gpus, reason
}
