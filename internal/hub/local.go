package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// A MissingError reports a model that is neither a local file or folder nor in the cache.
// [Client.Pull] fetches it.
type MissingError struct {
	Repo     Repo
	Revision string // empty: main
	GGUF     string // the type of the GGUF file, such as Q4_K_M; empty: the whole model
	Err      error  // why the cache does not have it: of kind [NotCached]
}

// Model returns ORG/NAME or ORG/NAME@REVISION, with :TYPE of a GGUF file.
func (e *MissingError) Model() string {
	name := e.Repo.String()
	if e.Revision != "" {
		name += "@" + e.Revision
	}
	if e.GGUF != "" {
		name += ":" + e.GGUF
	}
	return name
}

// Error returns one line that names the command which fetches the model.
func (e *MissingError) Error() string {
	return fmt.Sprintf("there is no folder %s, and the model is not in the cache; fetch it with: serve pull %[1]s (%v)", e.Model(), e.Err)
}

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Err }

// noModel is the error for a name that is neither a file nor a folder and that the cache does not
// have.
type noModel struct {
	name string
	err  error // of the cache
}

func (e noModel) Error() string {
	return fmt.Sprintf("there is no model %s: want a folder with config.json and *.safetensors, one such file, a .gguf file, or ORG/NAME on the hub", printable(e.name))
}

// Unwrap lets errors.Is find fs.ErrNotExist.
func (e noModel) Unwrap() []error { return []error{e.err, fs.ErrNotExist} }

// Local returns the path of the model that a user of the commands names. It is name itself if there
// is such a file or folder, and otherwise the snapshot of NAME, ORG/NAME or ORG/NAME@REVISION in
// the cache that the environment names. For ORG/NAME:TYPE it is the GGUF file that pulling it
// fetches. Local uses no network. A complete snapshot has config.json and all weights; if the cache
// has none, the error is a *MissingError. If name cannot be a model of a hub, the error matches
// fs.ErrNotExist.
//
// Public packages call hubcache.Find instead, which does not check the snapshot; reading its files
// does.
func Local(name string) (string, error) {
	_, err := os.Stat(name)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return name, err
	}
	model, tag := CutTag(name)
	repo, revision, bad := ParseRepo(model)
	if bad != nil {
		return "", noModel{name, bad}
	}
	config, err := UserEnvironment()
	if err != nil {
		return "", err
	}
	client, err := New(config)
	if err != nil {
		return "", err
	}
	defer client.Close()
	find := client.Cached
	if tag != "" {
		find = func(repo Repo, revision string) (string, error) { return client.CachedGGUF(repo, revision, tag) }
	}
	dir, err := find(repo, revision)
	switch {
	case Is(err, NotCached) && repo.Org != "":
		return "", &MissingError{repo, revision, tag, err}
	case Is(err, NotCached): // a single word is more likely a folder's name
		return "", noModel{name, err}
	}
	return dir, err
}
