package coded_test

import (
	"os"
	"testing"

	"github.com/heftai/heft/internal/kernels/fetch/fetchtest"
)

// TestMain runs all tests with several fetch plans, so that every form of a kernel is held to the
// same references, tails and guard pages.
func TestMain(m *testing.M) { os.Exit(fetchtest.Main(m)) }
