package main

import (
	"log/slog"
	"os"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/topology"
)

// checkEnvironment logs which resources the process lacks. It does not stop the process.
func (f *sizeFlags) checkEnvironment() {
	if dir := measurementsDir(f.CacheDir); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			slog.Warn("the cache folder cannot be made, so nothing is kept for later starts; set --cache-dir", "reason", err)
			f.CacheDir = "none"
		}
	}
	if limit, left := topology.AddressSpace(os.DirFS("/")); limit > 0 {
		slog.Warn("the address space is limited (ulimit -v): mapped weight files count, and the process ends when it is used up; use --max-memory instead",
			"limit", devicemap.FormatSize(limit), "left", devicemap.FormatSize(left))
	}
}
