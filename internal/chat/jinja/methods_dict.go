package jinja

// dictMethod returns a method of dict that changes nothing, or nil if there is none of that name.
func dictMethod(name string) func(st *state, d *Dict, c *args) (Value, error) {
	switch name {
	case "get":
		return func(st *state, d *Dict, c *args) (Value, error) {
			if err := c.positional(1, 2); err != nil {
				return nil, err
			}
			if err := st.keyWork(c.pos[0]); err != nil {
				return nil, err
			}
			i, err := d.find(c.pos[0])
			switch {
			case err != nil:
				return nil, err
			case i >= 0:
				return d.vals[i], nil
			case len(c.pos) == 2:
				return c.pos[1], nil
			}
			return nil, nil
		}
	case "keys", "values", "items":
		return func(_ *state, d *Dict, c *args) (Value, error) {
			return &view{d, name}, c.positional(0, 0)
		}
	case "copy":
		return func(st *state, d *Dict, c *args) (Value, error) {
			if err := c.positional(0, 0); err != nil {
				return nil, err
			}
			if err := st.growList(3 * d.Len()); err != nil {
				return nil, err
			}
			return d.Clone(), nil
		}
	case "fromkeys":
		return func(st *state, _ *Dict, c *args) (Value, error) { return dictFromKeys(st, c) }
	}
	return nil
}

func dictFromKeys(st *state, c *args) (Value, error) {
	if err := c.positional(1, 2); err != nil {
		return nil, err
	}
	keys, err := collect(st, c.pos[0])
	if err != nil {
		return nil, err
	}
	v := at(c.pos, 1)
	if v == missing {
		v = nil
	}
	d := &Dict{}
	for _, k := range keys {
		if err := st.keyWork(k); err != nil {
			return nil, err
		}
		if err := d.setValue(k, v); err != nil {
			return nil, err
		}
	}
	return d, st.growList(3 * len(keys))
}

// makeDict returns dict(mapping or pairs, **entries).
func makeDict(st *state, c *args) (*Dict, error) {
	if len(c.pos) > 1 {
		return nil, typeErrorf("dict expected at most 1 argument, got %d", len(c.pos))
	}
	d := &Dict{}
	if len(c.pos) == 1 {
		if from, ok := c.pos[0].(*Dict); ok {
			d = from.Clone()
		} else if err := addPairs(st, d, c.pos[0]); err != nil {
			return nil, err
		}
	}
	for i, name := range c.names {
		d.Set(name, c.values[i])
	}
	return d, st.growList(3 * d.Len())
}

func addPairs(st *state, d *Dict, v Value) error {
	if u, ok := v.(*undefined); ok {
		return u.err()
	}
	items, err := collect(st, v)
	if err != nil {
		return err
	}
	for _, item := range items {
		pair, err := unpack(st, item, 2)
		if err == nil {
			err = st.keyWork(pair[0])
		}
		if err == nil {
			err = d.setValue(pair[0], pair[1])
		}
		if err != nil {
			return err
		}
	}
	return nil
}
