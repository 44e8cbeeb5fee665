package dispatch

import (
	"testing"

	_ "github.com/heftai/heft/internal/testenv" // hides GPUs from examples
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
