package placement

import _ "github.com/heftai/heft/internal/testenv" // hides GPUs
