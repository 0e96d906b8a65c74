"""Files and folders that nobody else can write or that tell whether they are whole.

Law: bytes and names; what they mean is known above.

In reading order:

    files    file_names, private_files, sealed_folder, kernel_store
"""
