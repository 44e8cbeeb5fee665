// Package limit holds tests only: models of package dispatch keep to a memory limit that changes, alone or shared, and no bit
// of their answers changes.
package limit
