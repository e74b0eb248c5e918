"""From rewards to a gradient: advantages, the batch that trains, the losses and the KL penalty. Pure maths, no policy."""
