"""Source formats of captioned images, each read into one Manifest."""
