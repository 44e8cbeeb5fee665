// Package reload detects changes of files that a running server reads again, such as certificates
// and API keys. A [Version] identifies the contents of a file; [Watch] checks for changes
// periodically. The package does not read the files.
package reload

import (
	"context"
	"io/fs"
	"time"
)

// A Version identifies the contents of a file by its size and the time of its last change.
type Version struct {
	changed time.Time
	size    int64
}

// VersionOf returns the version of a file.
func VersionOf(info fs.FileInfo) Version { return Version{info.ModTime(), info.Size()} }

// Watch calls changed after each period, and calls reload if changed returns true. It returns when
// ctx ends.
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
