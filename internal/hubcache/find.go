package hubcache

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/heftai/heft/internal/smallfile"
)

// Main is the revision of a model without a stated one.
const Main = "main"

// Expand returns path with ~ and environment variables replaced.
func Expand(path string, getenv func(string) string, home string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		path = home + path[1:]
	}
	return os.Expand(path, getenv)
}

// Root returns the folder of the Hugging Face libraries: HF_HOME, else huggingface in XDG_CACHE_HOME
// or ~/.cache.
func Root(getenv func(string) string, home string) string {
	if root := Expand(getenv("HF_HOME"), getenv, home); root != "" {
		return root
	}
	caches := cmp.Or(Expand(getenv("XDG_CACHE_HOME"), getenv, home), filepath.Join(home, ".cache"))
	return filepath.Join(caches, "huggingface")
}

// Dir returns the folder of the cache: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, or hub in [Root].
func Dir(getenv func(string) string, home string) string {
	dir := Expand(cmp.Or(getenv("HF_HUB_CACHE"), getenv("HUGGINGFACE_HUB_CACHE")), getenv, home)
	return cmp.Or(dir, filepath.Join(Root(getenv, home), "hub"))
}

// Commit returns the commit of a revision of a model whose folder is root. It is "" if the cache does
// not know the revision.
func Commit(root, revision string) (string, error) {
	if IsCommit(revision) {
		return revision, nil
	}
	b, err := smallfile.Read(filepath.Join(root, "refs", filepath.FromSlash(revision)), longestRef)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the ref: %w", err)
	}
	commit := strings.TrimSpace(string(b))
	if !IsCommit(commit) {
		return "", fmt.Errorf("the cache's ref %s holds %s, want a commit", Printable(revision), Printable(commit))
	}
	return commit, nil
}

const longestRef = 200

// Error names the path or the model at fault.
type Error struct {
	Path   string
	Reason string
	Err    error // the cause; may be nil
}

// Error returns "PATH: REASON: CAUSE".
func (e *Error) Error() string {
	s := Printable(e.Path) + ": " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Find returns the path of a model that a user names: model itself if there is such a file or folder,
// else the snapshot of ORG/NAME or ORG/NAME@REVISION in the cache. If it finds neither, errors.Is(err,
// fs.ErrNotExist) holds. It uses no network. The error is an *Error.
func Find(model string) (string, error) {
	_, err := os.Stat(model)
	if err == nil {
		return model, nil
	}
	cause := &Error{Path: model, Reason: "cannot be opened", Err: bare(err)}
	repo, revision, bad := Parse(model)
	if bad != nil || repo.Org == "" || !errors.Is(err, fs.ErrNotExist) {
		return "", cause
	}
	cache := Dir(os.Getenv, cmp.Or(Home(), "."))
	root := filepath.Join(cache, repo.Folder())
	commit, err := Commit(root, cmp.Or(revision, Main))
	if err != nil {
		return "", &Error{Path: model, Reason: err.Error()}
	}
	dir := filepath.Join(root, "snapshots", commit)
	if _, err := os.Stat(dir); commit == "" || err != nil {
		cause.Reason = fmt.Sprintf("neither here nor in the cache %s (serve pull %s fetches it)", cache, model)
		return "", cause
	}
	return dir, nil
}

// Folder returns the folder with the files of the model that a user names: what [Find] returns, the
// parent of a file, or the snapshot of a model's folder in the cache: that of refs/main, or the only
// one.
func Folder(model string) (string, error) {
	path, err := Find(model)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", &Error{Path: path, Reason: "cannot be opened", Err: bare(err)}
	}
	if !info.IsDir() {
		return filepath.Dir(path), nil
	}
	snapshots := filepath.Join(path, "snapshots")
	if info, err := os.Stat(snapshots); err != nil || !info.IsDir() {
		return path, nil
	}
	return snapshot(path, snapshots)
}

// snapshot returns the snapshot of refs/main, or the only one.
func snapshot(path, snapshots string) (string, error) {
	ref := filepath.Join(path, "refs", Main)
	b, err := smallfile.Read(ref, longestRef)
	if err == nil {
		commit := strings.TrimSpace(string(b))
		if reason := UnsafePath(commit); reason != "" || strings.Contains(commit, "/") {
			return "", &Error{Path: ref, Reason: fmt.Sprintf("got the revision %s, want the name of a snapshot", Printable(commit))}
		}
		dir := filepath.Join(snapshots, commit)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return "", &Error{Path: ref, Reason: "names the snapshot " + Printable(commit) + ", which is not there"}
		}
		return dir, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", &Error{Path: ref, Reason: "cannot be read", Err: bare(err)}
	}
	entries, err := os.ReadDir(snapshots)
	if err != nil {
		return "", &Error{Path: snapshots, Reason: "cannot be listed", Err: bare(err)}
	}
	if len(entries) != 1 {
		return "", &Error{Path: path, Reason: fmt.Sprintf("%d snapshots and no refs/main: name one of snapshots/*", len(entries))}
	}
	return filepath.Join(snapshots, entries[0].Name()), nil
}

// bare returns the cause of an error of the file system without the path, which Error has.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Home returns the user's home folder: HOME, else that of the system's list of users, where Python's expanduser finds it,
// too. It returns "" if neither is there.
func Home() string {
	if home, err := os.UserHomeDir(); err == nil {
		return home
	}
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.HomeDir
}
