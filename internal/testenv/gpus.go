package testenv

import "os"

const visibleGPUs = "CUDA_VISIBLE_DEVICES"

// shownGPUs is the setting with which the process has started.
var shownGPUs, restrictedGPUs = os.LookupEnv(visibleGPUs)

// Tests of models in memory and on disk would run on the GPUs of a machine that has some, with build tag cuda, so this
// package hides them from the driver.
func init() { _ = os.Setenv(visibleGPUs, "") } // the name is valid

// ShowGPUs lets the tests of a package see the GPUs of the machine, simulated ones included. Call it in an init function,
// as the driver looks only once.
func ShowGPUs() {
	if restrictedGPUs {
		_ = os.Setenv(visibleGPUs, shownGPUs)
	} else {
		_ = os.Unsetenv(visibleGPUs)
	}
}
