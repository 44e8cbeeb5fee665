package dispatch

// GPU is a GPU that this build could run a part of a model on.
type GPU struct {
	Number         int
	Name           string
	MemoryBytes    int64
	AvailableBytes int64  // 0 where it is not used
	Capability     string // NVIDIA's compute capability, such as "8.0"
	Reason         string // why it is not used, or ""
}

// GPUs returns the GPUs of this machine, and why there are none, as text for people. It starts the driver, which
// takes some tenths of a second the first time.
func GPUs() (gpus []GPU, reason string) { return listGPUs() }

// GPUCode reports whether this build has code for GPUs, which is build tag cuda.
const GPUCode = gpuCode
