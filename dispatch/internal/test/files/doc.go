// Package files tests what package dispatch does when files of a checkpoint change, disappear or
// cannot be read.
package files
