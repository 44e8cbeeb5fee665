package dispatch

// A GPU describes a GPU of this machine.
type GPU struct {
	Number         int
	Name           string
	MemoryBytes    int64
	AvailableBytes int64  // 0 if it is not used
	Capability     string // NVIDIA's compute capability, such as "8.0"
	Reason         string // why it is not used, or ""
}

// GPUs returns the GPUs of this machine. If there are none, reason says why, as text for users.
// The first call starts the driver, which takes some tenths of a second.
func GPUs() (gpus []GPU, reason string) { return listGPUs() }

// GPUCode reports whether this build can use GPUs, which requires the build tag cuda.
const GPUCode = gpuCode
