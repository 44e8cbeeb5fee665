package testenv

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const process = "HEFT_TEST_PROCESS"

// IsProcess reports whether [InProcess] has started this process for t.
func IsProcess(t *testing.T) bool { return os.Getenv(process) == t.Name() }

// UnderDriver is [InProcess] with settings of the simulated driver of GPUs, whose faults can be chosen. It skips a test where
// the driver is another one.
func UnderDriver(t *testing.T, settings ...string) bool {
	t.Helper()
	if !IsProcess(t) {
		Need(t, "cudasim", os.Getenv("CUDASIM_KERNELS") != "", "a real driver's faults cannot be chosen; scripts/check-cuda.sh runs the tests on a simulated one")
	}
	return InProcess(t, settings...)
}

// InProcess runs the calling test again in a process of its own, with settings in its environment, and fails if it fails
// there. It reports whether this is that process.
func InProcess(t *testing.T, settings ...string) bool {
	t.Helper()
	if IsProcess(t) {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), process+"="+t.Name()), settings...)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("with %v: %v\n%s", settings, err, out)
	}
	return false
}
