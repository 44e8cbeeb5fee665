//go:build !cuda

package dispatch

const gpuCode = false

func listGPUs() ([]GPU, string) { return nil, "this build has no code for GPUs" }
