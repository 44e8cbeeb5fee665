// Package reload finds out when files change that a running server reads again, such as certificates
// and API keys. A [Version] tells two contents of a file apart; [Watch] looks for changes periodically. The
// package does not read the files.
package reload

import (
	"context"
	"io/fs"
	"time"
)

// A Version tells contents of a file apart, by the size of the file and the time of its last change.
type Version struct {
	changed time.Time
	size    int64
}

// VersionOf returns the version of a file.
func VersionOf(info fs.FileInfo) Version { return Version{info.ModTime(), info.Size()} }

// Watch calls changed every period, and reload if it returns true, until ctx ends.
func Watch(ctx context.Context, period time.Duration, changed func() bool, reload func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if changed() {
			reload()
		}
	}
}
