package loader

import (
	"io/fs"
	"path/filepath"

	"github.com/heftai/heft/meta"
)

// OpenModel opens the checkpoint at path like [Open] and builds the skeleton that its config.json
// describes. The caller closes the checkpoint.
func OpenModel(path string) (*meta.Model, *Checkpoint, error) {
	c, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	var config *meta.Config
	if c.fsys != nil { // a GGUF file describes its model itself
		config, err = meta.ReadConfigFS(c.fsys)
	} else {
		config, err = meta.ReadConfigFile(filepath.Join(c.Dir(), "config.json"))
	}
	return c.skeleton(config, err)
}

// OpenModelFS is [OpenModel] for the root of fsys; see [OpenFS].
func OpenModelFS(name string, fsys fs.FS) (*meta.Model, *Checkpoint, error) {
	c, err := OpenFS(name, fsys)
	if err != nil {
		return nil, nil, err
	}
	config, err := meta.ReadConfigFS(fsys)
	return c.skeleton(config, err)
}

// skeleton builds the skeleton for the contents of c, unless err is not nil. If there is an
// error, it closes c.
func (c *Checkpoint) skeleton(config *meta.Config, err error) (*meta.Model, *Checkpoint, error) {
	var m *meta.Model
	if err == nil {
		m, err = meta.New(config, c)
	}
	if err != nil {
		_ = c.Close() // the error tells more
		return nil, nil, err
	}
	return m, c, nil
}
