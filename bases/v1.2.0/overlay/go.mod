// Not a module that is built: this file keeps the overlay's packages, which
// only compile inside a v1.2.0 tree, out of the repository's own modules.
module holdfast/bases/v1.2.0/overlay

go 1.20
