//! UVH5: visibilities in HDF5, of pyuvdata.
